// Messages of Anthropic's API to those of a chat.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/messages_error.h"
#include "server/messages_translation.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kMessagesRoles = {"user", "assistant", "system"};

// Texts of several blocks stand on lines of their own, as the parts of a chat's message do.
void AppendBlockText(std::string_view text, std::string* all) {
  if (!all->empty()) all->push_back('\n');
  all->append(text);
}

std::optional<ApiError> RequiredBlockString(FieldReader& reader, const std::string& path,
                                            std::string_view name, std::string* value) {
  auto read = reader.String(name);
  if (reader.error()) return reader.error();
  if (!read) return MessagesFieldError(fmt::format("{}.{}", path, name), "field required");
  *value = std::move(*read);
  return std::nullopt;
}

std::optional<ApiError> BlockType(const ordered_json& block, const std::string& path, std::string* type) {
  if (!block.is_object()) {
    return MessagesFieldError(path, fmt::format("must be an object, not {}", JsonTypeName(block)));
  }
  FieldReader reader(block, path + ".");
  return RequiredBlockString(reader, path, "type", type);
}

std::optional<ApiError> ReadTextBlocks(const ordered_json& content, const std::string& path,
                                       std::string* text);

// Documents whose text is in the request.
std::optional<ApiError> ReadDocument(const ordered_json& block, const std::string& path, std::string* text) {
  FieldReader reader(block, path + ".");
  for (const char* field : {"title", "context"}) {
    if (const auto value = reader.String(field)) AppendBlockText(*value, text);
  }
  const ordered_json* source = reader.Object("source");
  if (reader.error()) return reader.error();
  if (source == nullptr) return MessagesFieldError(path + ".source", "field required");
  const std::string source_path = path + ".source";
  FieldReader source_reader(*source, source_path + ".");
  const auto type = source_reader.String("type");
  if (source_reader.error()) return source_reader.error();
  if (type == "text") {
    std::string data;
    if (auto error = RequiredBlockString(source_reader, source_path, "data", &data)) return error;
    AppendBlockText(data, text);
    return std::nullopt;
  }
  if (type == "content" && source_reader.Find("content") != nullptr) {
    return ReadTextBlocks(*source_reader.Find("content"), source_path + ".content", text);
  }
  return MessagesFieldError(source_path, "only documents of text are read, not files, PDFs or links");
}

// What a block says, appended to *text.
std::optional<ApiError> ReadTextBlock(const ordered_json& block, const std::string& type,
                                      const std::string& path, std::string* text) {
  FieldReader reader(block, path + ".");
  std::string value;
  if (type == "text") {
    if (auto error = RequiredBlockString(reader, path, "text", &value)) return error;
    AppendBlockText(value, text);
    return std::nullopt;
  }
  if (type == "document") return ReadDocument(block, path, text);
  if (type == "search_result") {
    for (const char* field : {"title", "source"}) {
      if (const auto line = reader.String(field)) AppendBlockText(*line, text);
    }
    const ordered_json* content = reader.Find("content");
    if (reader.error()) return reader.error();
    if (content == nullptr) return MessagesFieldError(path + ".content", "field required");
    return ReadTextBlocks(*content, path + ".content", text);
  }
  // What a search for tools has found; all tools are shown from the start.
  if (type == "tool_reference") {
    if (auto error = RequiredBlockString(reader, path, "tool_name", &value)) return error;
    AppendBlockText(value, text);
    return std::nullopt;
  }
  if (type == "image") return MessagesFieldError(path, "images are not supported: the model reads text only");
  return MessagesFieldError(path, fmt::format("content of type \"{}\" is not supported here", type));
}

// content: a string or a list of blocks with text.
std::optional<ApiError> ReadTextBlocks(const ordered_json& content, const std::string& path,
                                       std::string* text) {
  if (content.is_string()) {
    AppendBlockText(content.get_ref<const std::string&>(), text);
    return std::nullopt;
  }
  if (!content.is_array()) {
    return MessagesFieldError(
        path, fmt::format("must be a string or a list of blocks, not {}", JsonTypeName(content)));
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string block_path = fmt::format("{}.{}", path, i);
    std::string type;
    if (auto error = BlockType(content[i], block_path, &type)) return error;
    if (auto error = ReadTextBlock(content[i], type, block_path, text)) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> AddToolResult(const ordered_json& block, const std::string& path,
                                      ordered_json* messages) {
  FieldReader reader(block, path + ".");
  std::string id;
  if (auto error = RequiredBlockString(reader, path, "tool_use_id", &id)) return error;
  const bool is_error = reader.Bool("is_error").value_or(false);
  if (reader.error()) return reader.error();
  std::string text;
  if (const ordered_json* content = reader.Find("content")) {
    if (auto error = ReadTextBlocks(*content, path + ".content", &text)) return error;
  }
  // Chats have no mark for it.
  if (is_error) text = text.empty() ? "Error" : "Error: " + text;
  messages->push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
  return std::nullopt;
}

std::optional<ApiError> AddUserMessage(const ordered_json& content, const std::string& path,
                                       ordered_json* messages) {
  std::string text;
  bool has_text = !content.is_array();
  bool has_results = false;
  if (has_text) {
    if (auto error = ReadTextBlocks(content, path, &text)) return error;
  } else {
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string block_path = fmt::format("{}.{}", path, i);
      std::string type;
      if (auto error = BlockType(content[i], block_path, &type)) return error;
      if (type == "tool_result") {
        has_results = true;
        if (auto error = AddToolResult(content[i], block_path, messages)) return error;
        continue;
      }
      has_text = true;
      if (auto error = ReadTextBlock(content[i], type, block_path, &text)) return error;
    }
  }
  if (has_text || !has_results) messages->push_back({{"role", "user"}, {"content", text}});
  return std::nullopt;
}

std::optional<ApiError> ReadToolUse(const ordered_json& block, const std::string& path, ordered_json* calls) {
  FieldReader reader(block, path + ".");
  std::string id;
  if (auto error = RequiredBlockString(reader, path, "id", &id)) return error;
  std::string name;
  if (auto error = RequiredBlockString(reader, path, "name", &name)) return error;
  const ordered_json* input = reader.Object("input");
  if (reader.error()) return reader.error();
  if (input == nullptr) return MessagesFieldError(path + ".input", "field required");
  calls->push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", DumpJson(*input)}}}});
  return std::nullopt;
}

std::optional<ApiError> ReadAssistantMessage(const ordered_json& content, const std::string& path,
                                             ordered_json* message) {
  std::string text;
  std::string reasoning;
  ordered_json calls = ordered_json::array();
  if (!content.is_array()) {
    if (auto error = ReadTextBlocks(content, path, &text)) return error;
  } else {
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string block_path = fmt::format("{}.{}", path, i);
      std::string type;
      if (auto error = BlockType(content[i], block_path, &type)) return error;
      std::optional<ApiError> error;
      if (type == "tool_use") {
        error = ReadToolUse(content[i], block_path, &calls);
      } else if (type == "thinking") {
        FieldReader reader(content[i], block_path + ".");
        std::string thinking;
        error = RequiredBlockString(reader, block_path, "thinking", &thinking);
        if (!error) AppendBlockText(thinking, &reasoning);
      } else if (type != "redacted_thinking") {
        error = ReadTextBlock(content[i], type, block_path, &text);
      }
      if (error) return error;
    }
  }
  *message = {{"role", "assistant"}, {"content", text}};
  if (!reasoning.empty()) (*message)["reasoning_content"] = reasoning;
  if (!calls.empty()) (*message)["tool_calls"] = std::move(calls);
  return std::nullopt;
}

std::optional<ApiError> AddApiMessage(const ordered_json& message, const std::string& path,
                                      ordered_json* messages) {
  if (!message.is_object()) {
    return MessagesFieldError(path, fmt::format("must be an object, not {}", JsonTypeName(message)));
  }
  FieldReader reader(message, path + ".");
  const auto role = reader.OneOf("role", kMessagesRoles);
  if (reader.error()) return reader.error();
  if (!role) return MessagesFieldError(path + ".role", "field required");
  const ordered_json* content = reader.Find("content");
  const std::string content_path = path + ".content";
  if (content == nullptr) return MessagesFieldError(content_path, "field required");
  if (*role == "user") return AddUserMessage(*content, content_path, messages);
  ordered_json translated;
  if (*role == "assistant") {
    if (auto error = ReadAssistantMessage(*content, content_path, &translated)) return error;
  } else {
    std::string text;
    if (auto error = ReadTextBlocks(*content, content_path, &text)) return error;
    translated = {{"role", "system"}, {"content", text}};
  }
  messages->push_back(std::move(translated));
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> TranslateMessagesConversation(const ordered_json& body, ordered_json* chat) {
  FieldReader reader(body);
  const ordered_json* messages = reader.Find("messages");
  if (messages == nullptr) return MessagesFieldError("messages", "field required");
  if (!messages->is_array() || messages->empty()) {
    return MessagesFieldError("messages", "must be a list with at least one message");
  }
  ordered_json& translated = (*chat)["messages"] = ordered_json::array();
  if (const ordered_json* system = reader.Find("system")) {
    std::string text;
    if (auto error = ReadTextBlocks(*system, "system", &text)) return error;
    if (!text.empty()) translated.push_back({{"role", "system"}, {"content", text}});
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    if (auto error = AddApiMessage((*messages)[i], fmt::format("messages.{}", i), &translated)) return error;
  }
  // The answer goes on with the assistant's own beginning, if that says anything.
  const ordered_json& last = translated.back();
  if (last["role"] != "assistant") return std::nullopt;
  if (last.contains("tool_calls")) {
    return MessagesFieldError(
        fmt::format("messages.{}", messages->size() - 1),
        "the tool_use blocks of the last message have no tool_result blocks behind them");
  }
  if (last["content"].get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos) {
    translated.erase(translated.size() - 1);
  } else {
    (*chat)["continue_final_message"] = true;
  }
  return std::nullopt;
}

}  // namespace tandem
