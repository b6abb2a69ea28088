// Tools of Anthropic's Messages API to those of a chat.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/messages_error.h"
#include "server/messages_translation.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Tools that the client runs, and whose schema that API leaves out because its models know it.
struct KnownTool {
  std::string_view type_prefix;  // a date follows
  std::string_view description;
  std::string_view schema;
};

constexpr std::array kKnownTools = {
    KnownTool{"bash_", "Runs a command in a bash session that stays open, and returns what it prints.",
              R"({"type": "object", "properties": {
  "command": {"type": "string", "description": "The command to run."},
  "restart": {"type": "boolean", "description": "Starts a new session instead."}}})"},
    KnownTool{"text_editor_", "Views, creates and changes text files.",
              R"({"type": "object", "properties": {
  "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
  "path": {"type": "string", "description": "Of the file or directory."},
  "view_range": {"type": "array", "items": {"type": "integer"},
    "description": "view: first and last line; -1: the end."},
  "file_text": {"type": "string", "description": "create: all of the file's text."},
  "old_str": {"type": "string",
    "description": "str_replace: the text to replace, which the file has once."},
  "new_str": {"type": "string", "description": "str_replace: the text in its place."},
  "insert_line": {"type": "integer",
    "description": "insert: the line behind which the text goes; 0: the start."},
  "insert_text": {"type": "string", "description": "insert: the text."}},
  "required": ["command", "path"]})"},
};

const KnownTool* FindKnownTool(std::string_view type) {
  for (const KnownTool& tool : kKnownTools) {
    if (type.starts_with(tool.type_prefix)) return &tool;
  }
  return nullptr;
}

// *translated stays null where the tool is dropped: one without a schema that only a vendor's cloud runs.
std::optional<ApiError> TranslateMessagesTool(const ordered_json& tool, const std::string& path,
                                              ordered_json* translated) {
  if (!tool.is_object()) {
    return MessagesFieldError(path, fmt::format("must be an object, not {}", JsonTypeName(tool)));
  }
  FieldReader reader(tool, path + ".");
  const std::string type = reader.String("type").value_or("custom");
  const auto name = reader.String("name");
  const auto description = reader.String("description");
  const ordered_json* schema = reader.Object("input_schema");
  const auto strict = reader.Bool("strict");
  if (reader.error()) return reader.error();
  const KnownTool* const known = FindKnownTool(type);
  if (schema == nullptr && known == nullptr && type != "custom") {
    if (!type.starts_with("computer_")) return std::nullopt;
    return MessagesFieldError(path, "the computer tool answers with images, which are not supported");
  }
  if (!name) return MessagesFieldError(path + ".name", "field required");
  if (schema == nullptr && known == nullptr) {
    return MessagesFieldError(path + ".input_schema", "field required");
  }
  ordered_json function = {{"name", *name}};
  if (description) {
    function["description"] = *description;
  } else if (known != nullptr) {
    function["description"] = known->description;
  }
  function["parameters"] = schema != nullptr ? *schema : ordered_json::parse(known->schema);
  if (strict) function["strict"] = *strict;
  *translated = {{"type", "function"}, {"function", std::move(function)}};
  return std::nullopt;
}

std::optional<ApiError> TranslateMessagesToolChoice(const ordered_json& choice, ordered_json* chat) {
  constexpr std::array<std::string_view, 4> kTypes = {"auto", "any", "tool", "none"};
  FieldReader reader(choice, "tool_choice.");
  const auto type = reader.OneOf("type", kTypes);
  const auto name = reader.String("name");
  const bool one_call = reader.Bool("disable_parallel_tool_use").value_or(false);
  if (reader.error()) return reader.error();
  if (!type) return MessagesFieldError("tool_choice.type", "field required");
  if (one_call) (*chat)["parallel_tool_calls"] = false;
  ordered_json& translated = (*chat)["tool_choice"];
  if (*type == "tool") {
    if (!name) return MessagesFieldError("tool_choice.name", "field required");
    translated = {{"type", "function"}, {"function", {{"name", *name}}}};
  } else {
    translated = *type == "any" ? "required" : *type;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> TranslateMessagesTools(const ordered_json& body, ordered_json* chat,
                                               std::vector<size_t>* indices) {
  FieldReader reader(body);
  const ordered_json* choice = reader.Object("tool_choice");
  if (reader.error()) return reader.error();
  if (const ordered_json* tools = reader.Find("tools")) {
    if (!tools->is_array()) {
      return MessagesFieldError("tools", fmt::format("must be a list, not {}", JsonTypeName(*tools)));
    }
    ordered_json translated = ordered_json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      ordered_json tool;
      if (auto error = TranslateMessagesTool((*tools)[i], fmt::format("tools.{}", i), &tool)) return error;
      if (tool.is_null()) continue;
      translated.push_back(std::move(tool));
      indices->push_back(i);
    }
    if (!translated.empty()) (*chat)["tools"] = std::move(translated);
  }
  if (choice == nullptr) return std::nullopt;
  if (auto error = TranslateMessagesToolChoice(*choice, chat)) return error;
  if (chat->contains("tools")) return std::nullopt;
  // Without tools only a choice that demands one means anything.
  const ordered_json& translated = (*chat)["tool_choice"];
  if (translated != "auto" && translated != "none") {
    return MessagesFieldError("tool_choice", "demands a tool, but there is none that the model can call");
  }
  chat->erase("tool_choice");
  chat->erase("parallel_tool_calls");
  return std::nullopt;
}

}  // namespace tandem
