#include "server/responses_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/field_reader.h"
#include "server/responses_tools.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr auto kItemRoles = std::to_array<std::string_view>({"user", "assistant", "system", "developer"});
constexpr auto kTextParts =
    std::to_array<std::string_view>({"input_text", "output_text", "text", "summary_text", "reasoning_text"});
// What a vendor's cloud did. Its results are not in them.
constexpr auto kDroppedItems =
    std::to_array<std::string_view>({"web_search_call", "file_search_call", "tool_search_call"});

// A string, or a list of parts with text: a string, or a list of a chat's text parts.
std::optional<ApiError> ReadItemText(const ordered_json& content, const std::string& param,
                                     ordered_json* text) {
  if (content.is_string()) {
    *text = content;
    return std::nullopt;
  }
  if (!content.is_array()) {
    return InvalidRequest(param, fmt::format("{} must be a string or a list of text parts, not {}", param,
                                             JsonTypeName(content)));
  }
  *text = ordered_json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const ordered_json& part = content[i];
    const std::string part_param = fmt::format("{}[{}]", param, i);
    if (!part.is_object()) {
      return InvalidRequest(part_param,
                            fmt::format("{} must be an object, not {}", part_param, JsonTypeName(part)));
    }
    FieldReader reader(part, part_param + ".");
    const auto type = reader.String("type");
    if (reader.error()) return reader.error();
    const bool is_refusal = type == "refusal";
    if (!type ||
        (!is_refusal && std::find(kTextParts.begin(), kTextParts.end(), *type) == kTextParts.end())) {
      return InvalidRequest(part_param, fmt::format("{}: content of type {} is not supported, only text is",
                                                    part_param, type ? '"' + *type + '"' : "null"));
    }
    const char* const member = is_refusal ? "refusal" : "text";
    auto part_text = reader.String(member);
    if (reader.error()) return reader.error();
    if (!part_text) {
      return InvalidRequest(fmt::format("{}.{}", part_param, member),
                            fmt::format("{}.{} is missing", part_param, member));
    }
    text->push_back({{"type", "text"}, {"text", std::move(*part_text)}});
  }
  if (text->empty()) *text = "";
  if (text->is_array() && text->size() == 1) *text = ordered_json((*text)[0]["text"]);
  return std::nullopt;
}

bool IsAssistant(const ordered_json& message) {
  return message["role"] == "assistant";
}

bool IsOnlyReasoning(const ordered_json& message) {
  const ordered_json& content = message["content"];
  return IsAssistant(message) && content.is_string() && content.get_ref<const std::string&>().empty() &&
         message.contains("reasoning_content") && !message.contains("tool_calls");
}

class ItemReader {
 public:
  ItemReader(const ordered_json& item, const std::string& param, ResponsesMessages* messages)
      : param_(param), reader_(item, param + "."), messages_(*messages) {}

  std::optional<ApiError> Message();
  std::optional<ApiError> Call(bool is_custom);
  std::optional<ApiError> CallOutput();
  std::optional<ApiError> Reasoning();

 private:
  ApiError Missing(std::string_view name) const {
    return InvalidRequest(fmt::format("{}.{}", param_, name), fmt::format("{}.{} is missing", param_, name));
  }
  ordered_json* Last() { return messages_.messages.empty() ? nullptr : &messages_.messages.back(); }
  ordered_json& Push(ordered_json message) {
    messages_.messages.push_back(std::move(message));
    messages_.params.push_back(param_);
    return messages_.messages.back();
  }

  const std::string& param_;
  FieldReader reader_;
  ResponsesMessages& messages_;
};

std::optional<ApiError> ItemReader::Message() {
  const auto role = reader_.OneOf("role", kItemRoles);
  if (reader_.error()) return reader_.error();
  if (!role) return Missing("role");
  const ordered_json* content = reader_.Find("content");
  if (content == nullptr && *role != "assistant") return Missing("content");
  ordered_json text = "";
  if (content != nullptr) {
    if (auto error = ReadItemText(*content, param_ + ".content", &text)) return error;
  }
  ordered_json* last = Last();
  if (*role == "assistant" && last != nullptr && IsOnlyReasoning(*last)) {
    (*last)["content"] = std::move(text);
    messages_.params.back() = param_;
    return std::nullopt;
  }
  Push({{"role", *role}, {"content", std::move(text)}});
  return std::nullopt;
}

std::optional<ApiError> ItemReader::Call(bool is_custom) {
  const auto call_id = reader_.String("call_id");
  const auto name = reader_.String("name");
  const auto name_space = reader_.String("namespace");
  const char* const member = is_custom ? "input" : "arguments";
  const auto text = reader_.String(member);
  if (reader_.error()) return reader_.error();
  if (!call_id) return Missing("call_id");
  if (!name) return Missing("name");
  if (!text) return Missing(member);
  const std::string arguments = is_custom ? ordered_json({{"input", *text}}).dump() : *text;
  ordered_json* message = Last();
  if (message == nullptr || !IsAssistant(*message)) {
    message = &Push({{"role", "assistant"}, {"content", ""}});
  }
  (*message)["tool_calls"].push_back(
      {{"id", *call_id},
       {"type", "function"},
       {"function", {{"name", FunctionName(name_space.value_or(""), *name)}, {"arguments", arguments}}}});
  return std::nullopt;
}

std::optional<ApiError> ItemReader::CallOutput() {
  const auto call_id = reader_.String("call_id");
  if (reader_.error()) return reader_.error();
  if (!call_id) return Missing("call_id");
  const ordered_json* output = reader_.Find("output");
  if (output == nullptr) return Missing("output");
  ordered_json text;
  if (auto error = ReadItemText(*output, param_ + ".output", &text)) return error;
  Push({{"role", "tool"}, {"tool_call_id", *call_id}, {"content", std::move(text)}});
  return std::nullopt;
}

std::optional<ApiError> ItemReader::Reasoning() {
  std::string reasons;
  for (const char* const member : {"content", "summary"}) {
    const ordered_json* parts = reader_.Find(member);
    if (parts == nullptr || !reasons.empty()) continue;
    ordered_json text;
    if (auto error = ReadItemText(*parts, fmt::format("{}.{}", param_, member), &text)) return error;
    if (text.is_string()) text = ordered_json::array({{{"text", text}}});
    for (const ordered_json& part : text) {
      if (!reasons.empty()) reasons += '\n';
      reasons += part["text"].get_ref<const std::string&>();
    }
  }
  // Encrypted ones are of other servers, and none can be read.
  if (reasons.empty()) return std::nullopt;
  ordered_json* last = Last();
  if (last != nullptr && IsOnlyReasoning(*last)) {
    (*last)["reasoning_content"] = (*last)["reasoning_content"].get<std::string>() + '\n' + reasons;
  } else {
    Push({{"role", "assistant"}, {"content", ""}, {"reasoning_content", reasons}});
  }
  return std::nullopt;
}

}  // namespace

void AddInstructions(const std::string& instructions, ResponsesMessages* messages) {
  messages->messages.push_back({{"role", "system"}, {"content", instructions}});
  messages->params.emplace_back("instructions");
}

std::optional<ApiError> AddResponsesItem(const ordered_json& item, const std::string& param,
                                         ResponsesMessages* messages) {
  if (!item.is_object()) {
    return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(item)));
  }
  FieldReader reader(item, param + ".");
  const auto type = reader.String("type");
  if (reader.error()) return reader.error();
  ItemReader item_reader(item, param, messages);
  if (!type || *type == "message") return item_reader.Message();
  if (*type == "function_call") return item_reader.Call(false);
  if (*type == "custom_tool_call") return item_reader.Call(true);
  if (*type == "function_call_output" || *type == "custom_tool_call_output") return item_reader.CallOutput();
  if (*type == "reasoning") return item_reader.Reasoning();
  if (std::find(kDroppedItems.begin(), kDroppedItems.end(), *type) != kDroppedItems.end())
    return std::nullopt;
  return InvalidRequest(param, fmt::format("{}: items of type \"{}\" are not supported", param, *type));
}

void FinishMessages(ResponsesMessages* messages) {
  for (size_t i = messages->messages.size(); i-- > 0;) {
    if (!IsOnlyReasoning(messages->messages[i])) continue;
    messages->messages.erase(i);
    messages->params.erase(messages->params.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::string ResponsesFieldName(const std::string& chat_name, const ResponsesMessages& messages,
                               const ResponsesTools& tools) {
  std::vector<std::pair<std::string, std::string>> names;  // the longer before what they begin with
  for (size_t i = 0; i < messages.params.size(); ++i) {
    names.emplace_back(fmt::format("messages[{}]", i), messages.params[i]);
  }
  for (size_t i = 0; i < tools.params.size(); ++i) {
    names.emplace_back(fmt::format("tools[{}].function", i), tools.params[i]);
    names.emplace_back(fmt::format("tools[{}]", i), tools.params[i]);
  }
  names.insert(names.end(), {{"messages", "input"},
                             {"prompt", "input"},
                             {"response_format.json_schema", "text.format"},
                             {"response_format", "text.format"},
                             {"reasoning_effort", "reasoning.effort"},
                             {"max_tokens", "max_output_tokens"},
                             {"tool_choice.function", "tool_choice"}});
  for (const auto& [begin, own_begin] : names) {
    if (!chat_name.starts_with(begin)) continue;
    const std::string_view rest = std::string_view(chat_name).substr(begin.size());
    if (rest.empty() || rest[0] == '.' || rest[0] == '[') return own_begin + std::string(rest);
  }
  return chat_name;
}

}  // namespace tandem
