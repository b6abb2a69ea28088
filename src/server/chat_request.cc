// /v1/chat/completions: JSON to GenerationRequest, messages to text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "dialect/tool_messages.h"
#include "server/chat_tools.h"
#include "server/field_reader.h"
#include "server/generation_request.h"
#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 7> kReasoningEfforts = {"none", "minimal", "low", "medium",
                                                               "high", "xhigh",   "max"};

// Text of a message: a string, or a list of {"type": "text", "text": ...} joined by line ends.
std::optional<ApiError> ReadContent(const ordered_json& content, const std::string& param,
                                    std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) {
    return InvalidRequest(param, fmt::format("{} must be a string or a list of text parts, not {}", param,
                                             JsonTypeName(content)));
  }
  text->clear();
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
    if (type != "text") {
      return InvalidRequest(part_param + ".type",
                            fmt::format("{}: content of type {} is not supported, only text is", part_param,
                                        type ? '"' + *type + '"' : "null"));
    }
    const auto part_text = reader.String("text");
    if (reader.error()) return reader.error();
    if (!part_text) return InvalidRequest(part_param + ".text", part_param + ".text is missing");
    if (i > 0) text->push_back('\n');
    text->append(*part_text);
  }
  return std::nullopt;
}

std::optional<ApiError> ReadMessage(const ordered_json& message, size_t index, ordered_json* normalized) {
  const std::string param = fmt::format("messages[{}]", index);
  if (!message.is_object()) {
    return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(message)));
  }
  FieldReader reader(message, param + ".");
  const auto role = reader.OneOf("role", kChatRoles);
  if (reader.error()) return reader.error();
  if (!role) return InvalidRequest(param + ".role", param + ".role is missing");
  *normalized = message;
  std::string text;
  if (const ordered_json* content = reader.Find("content")) {
    if (auto error = ReadContent(*content, param + ".content", &text)) return error;
  } else if (*role != "assistant" || reader.Find("tool_calls") == nullptr) {
    return InvalidRequest(param + ".content", param + ".content is missing");
  }
  (*normalized)["content"] = text;
  return std::nullopt;
}

// Whether messages are about calls of tools.
bool HasCalls(const ordered_json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const ordered_json& message) {
    const ordered_json& role = message.at("role");
    return role == "tool" || role == "function" || message.contains("tool_calls");
  });
}

// Messages and tools as the model's template can show them.
void FitToTemplate(const ChatTools& tools, const ModelContext& model, ordered_json* content) {
  ordered_json& messages = (*content)["messages"];
  const bool about_tools = !tools.offered.empty() || HasCalls(messages);
  const ToolFormat format = model.tool_format;
  if (about_tools && format == ToolFormat::kGeneric) messages = RenderToolsAsText(messages, tools.offered);
  messages = NormalizeMessages(messages, model.template_habits);
  if (about_tools && (format == ToolFormat::kMistral || format == ToolFormat::kMistralArgs))
    messages = WithShortCallIds(messages);
  (*content)["tools"] = nullptr;
  if (!tools.offered.empty() && format != ToolFormat::kGeneric)
    (*content)["tools"] = ToolsForTemplate(tools.offered);
}

// What an answer of the assistant begins with where it is asked to repeat what it goes on with.
std::string TextToEcho(const ordered_json& last_message) {
  std::string text;
  const auto content = last_message.find("content");
  if (last_message.at("role") == "assistant" && content != last_message.end() && !content->is_null()) {
    ReadContent(*content, "content", &text);  // cannot fail: it was read before
  }
  return text;
}

// Variables of the template that have fields of their own. chat_template_kwargs has the last word.
void ReadTemplateVariables(FieldReader& reader, ordered_json* content, ordered_json* own) {
  if (const auto effort = reader.OneOf("reasoning_effort", kReasoningEfforts)) {
    (*own)["reasoning_effort"] = *effort;
    if (*effort == "none") (*own)["enable_thinking"] = false;
  }
  if (const auto thinks = reader.Bool("enable_thinking")) (*own)["enable_thinking"] = *thinks;
  const ordered_json* documents = reader.Find("documents");
  if (documents == nullptr) return;
  const bool is_list_of_objects =
      documents->is_array() && std::all_of(documents->begin(), documents->end(),
                                           [](const ordered_json& item) { return item.is_object(); });
  if (!is_list_of_objects) return reader.Fail("documents", "documents must be a list of objects");
  (*content)["documents"] = *documents;
}

// Cuts what the template puts behind the last message's text.
void CutBehindFinalMessage(const ordered_json& messages, RenderedChat* chat) {
  std::string* text = &chat->text;
  const auto& content = messages.back()["content"].get_ref<const std::string&>();
  const size_t begin = content.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return;
  const size_t end = content.find_last_not_of(" \t\r\n") + 1;
  const size_t found = text->rfind(content.substr(begin, end - begin));
  if (found == std::string::npos) return;
  // Spaces at the end of the content stay, if the template kept them.
  size_t cut = found + (end - begin);
  for (size_t i = end; i < content.size() && cut < text->size() && (*text)[cut] == content[i]; ++i) ++cut;
  text->resize(cut);
  chat->provenance = chat->provenance.Slice(0, cut);
}

}  // namespace

std::optional<ApiError> RenderChat(const ordered_json& body, const ModelContext& model, RenderedChat* chat,
                                   ChatTools* tools) {
  FieldReader reader(body);
  const ordered_json* messages = reader.Find("messages");
  if (messages == nullptr) return InvalidRequest("messages", "messages is missing");
  if (!messages->is_array() || messages->empty()) {
    return InvalidRequest("messages", "messages must be a list with at least one message");
  }
  ordered_json content = ordered_json::object();
  ordered_json& normalized = content["messages"] = ordered_json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    ordered_json message;
    if (auto error = ReadMessage((*messages)[i], i, &message)) return error;
    normalized.push_back(std::move(message));
  }
  ChatTools read_tools;
  if (tools == nullptr) tools = &read_tools;
  if (auto error = ReadChatTools(body, tools)) return error;
  const bool continue_final = reader.Bool("continue_final_message").value_or(false);
  const bool add_prompt = reader.Bool("add_generation_prompt").value_or(!continue_final);
  const ordered_json* kwargs = reader.Object("chat_template_kwargs");
  if (continue_final && add_prompt) {
    reader.Fail("continue_final_message", "continue_final_message excludes add_generation_prompt");
  }
  ordered_json own = {{"add_generation_prompt", add_prompt},
                      {"bos_token", model.tokenizer->bos_token()},
                      {"eos_token", model.tokenizer->eos_token()}};
  ReadTemplateVariables(reader, &content, &own);
  if (reader.error()) return reader.error();
  if (model.chat_template == nullptr) {
    return InvalidRequest("messages", "this model has no chat template; use /v1/completions");
  }
  FitToTemplate(*tools, model, &content);
  if (kwargs != nullptr) {
    for (const auto& [key, value] : kwargs->items()) {
      if (key != "messages") content[key] = value;
    }
  }
  auto rendered = model.chat_template->Render(content, own);
  if (!rendered.ok()) return InvalidRequest("messages", rendered.error().message);
  *chat = std::move(rendered).value();
  if (continue_final) CutBehindFinalMessage(content["messages"], chat);
  return std::nullopt;
}

std::vector<int32_t> EncodeChat(const RenderedChat& chat, const ModelContext& model,
                                bool add_special_tokens) {
  if (model.special_tokens_in_content) return model.tokenizer->Encode(chat.text, add_special_tokens);
  return model.tokenizer->Encode(chat.text, chat.provenance, add_special_tokens);
}

std::optional<ApiError> ParseChatRequest(const ordered_json& body, const ModelContext& model,
                                         GenerationRequest* request) {
  request->kind = GenerationRequest::Kind::kChat;
  if (auto error = CheckBody(body, model, request)) return error;
  if (auto error = ParseSampling(body, model, request)) return error;

  FieldReader fields(body);
  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top_logprobs = fields.Int("top_logprobs", 0, kMaxTopLogprobs);
  if (top_logprobs.value_or(0) > 0 && !logprobs)
    fields.Fail("top_logprobs", "top_logprobs needs logprobs to be true");
  if (logprobs) {
    request->num_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));
    request->sampling.num_top_logprobs = request->num_logprobs;
  }
  const auto max_tokens = fields.Int("max_tokens", 1, std::numeric_limits<int64_t>::max());
  const auto max_completion_tokens =
      fields.Int("max_completion_tokens", 1, std::numeric_limits<int64_t>::max());
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  request->echo = fields.Bool("echo").value_or(false);
  if (fields.error()) return fields.error();

  RenderedChat chat;
  ChatTools tools;
  if (auto error = RenderChat(body, model, &chat, &tools)) return error;
  if (auto error = ReadAnswerForm(body, model, tools, chat.text, request)) return error;
  GenerationRequest::Prompt prompt;
  prompt.tokens = EncodeChat(chat, model, add_special_tokens);
  if (prompt.tokens.empty()) return InvalidRequest("messages", "the messages make an empty prompt");
  if (request->echo) prompt.text = TextToEcho(body["messages"].back());
  const auto limit = max_completion_tokens ? max_completion_tokens : max_tokens;
  TruncatePrompt(*request, limit, model, &prompt);
  const int64_t default_max_tokens =
      model.default_max_tokens > 0 ? model.default_max_tokens : model.max_model_len;
  if (auto error = FitContext(limit, default_max_tokens, model, &prompt)) {
    if (error->param == "prompt") error->param = "messages";
    if (error->param == "max_tokens" && max_completion_tokens) error->param = "max_completion_tokens";
    return error;
  }
  if (request->sampling.min_tokens > prompt.max_tokens) {
    return InvalidRequest("min_tokens", fmt::format("min_tokens must be at most max_tokens ({}), got {}",
                                                    prompt.max_tokens, request->sampling.min_tokens));
  }
  request->prompts.push_back(std::move(prompt));
  return std::nullopt;
}

}  // namespace tandem
