// /v1/chat/completions: JSON to GenerationRequest, messages to text.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/generation_request.h"
#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxTopLogprobs = 20;

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

// Clients send a call's arguments as a string of JSON; templates want the object.
void ParseToolCallArguments(ordered_json* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || !calls->is_array()) return;
  for (ordered_json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    ordered_json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto arguments = ParseJson(function["arguments"].get_ref<const std::string&>());
    if (arguments.ok()) function["arguments"] = std::move(arguments).value();
  }
}

std::optional<ApiError> ReadMessage(const ordered_json& message, size_t index, ordered_json* normalized) {
  const std::string param = fmt::format("messages[{}]", index);
  if (!message.is_object()) {
    return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(message)));
  }
  FieldReader reader(message, param + ".");
  const auto role = reader.String("role");
  if (reader.error()) return reader.error();
  if (!role) return InvalidRequest(param + ".role", param + ".role is missing");
  if (std::find(kChatRoles.begin(), kChatRoles.end(), *role) == kChatRoles.end()) {
    return InvalidRequest(param + ".role", fmt::format("{}.role must be one of {}, got \"{}\"", param,
                                                       fmt::join(kChatRoles, ", "), *role));
  }
  *normalized = message;
  std::string text;
  if (const ordered_json* content = reader.Find("content")) {
    if (auto error = ReadContent(*content, param + ".content", &text)) return error;
  } else if (*role != "assistant" || reader.Find("tool_calls") == nullptr) {
    return InvalidRequest(param + ".content", param + ".content is missing");
  }
  (*normalized)["content"] = text;
  ParseToolCallArguments(normalized);
  return std::nullopt;
}

std::optional<ApiError> ReadTools(FieldReader& reader, ordered_json* tools) {
  *tools = nullptr;
  const ordered_json* choice = reader.Find("tool_choice");
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    return InvalidRequest("tool_choice", "tool_choice: only \"none\" and \"auto\" are supported");
  }
  const ordered_json* given = reader.Find("tools");
  if (given == nullptr) return std::nullopt;
  if (!given->is_array()) {
    return InvalidRequest("tools", fmt::format("tools must be a list, not {}", JsonTypeName(*given)));
  }
  for (size_t i = 0; i < given->size(); ++i) {
    if (!(*given)[i].is_object()) {
      return InvalidRequest(fmt::format("tools[{}]", i),
                            fmt::format("tools[{}] must be an object, not {}", i, JsonTypeName((*given)[i])));
    }
  }
  if (!given->empty() && (choice == nullptr || *choice != "none")) *tools = *given;
  return std::nullopt;
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

std::optional<ApiError> RenderChat(const ordered_json& body, const ModelContext& model, RenderedChat* chat) {
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
  ordered_json tools;
  if (auto error = ReadTools(reader, &tools)) return error;
  const bool continue_final = reader.Bool("continue_final_message").value_or(false);
  const bool add_prompt = reader.Bool("add_generation_prompt").value_or(!continue_final);
  const ordered_json* kwargs = reader.Object("chat_template_kwargs");
  if (continue_final && add_prompt) {
    reader.Fail("continue_final_message", "continue_final_message excludes add_generation_prompt");
  }
  if (reader.error()) return reader.error();
  if (model.chat_template == nullptr) {
    return InvalidRequest("messages", "this model has no chat template; use /v1/completions");
  }
  content["tools"] = std::move(tools);
  const ordered_json own = {{"add_generation_prompt", add_prompt},
                            {"bos_token", model.tokenizer->bos_token()},
                            {"eos_token", model.tokenizer->eos_token()}};
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
  if (!body.is_object()) {
    return InvalidRequest("",
                          fmt::format("the request body must be a JSON object, not {}", JsonTypeName(body)));
  }
  if (auto error = CheckModelName(body, model)) return error;
  request->kind = GenerationRequest::Kind::kChat;
  if (auto error = ParseSampling(body, model, request)) return error;

  FieldReader fields(body);
  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top_logprobs = fields.Int("top_logprobs", 0, kMaxTopLogprobs);
  if (top_logprobs && !logprobs) fields.Fail("top_logprobs", "top_logprobs needs logprobs to be true");
  if (logprobs) {
    request->num_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));
    request->sampling.num_top_logprobs = request->num_logprobs;
  }
  const auto max_tokens = fields.Int("max_tokens", 1, std::numeric_limits<int64_t>::max());
  const auto max_completion_tokens =
      fields.Int("max_completion_tokens", 1, std::numeric_limits<int64_t>::max());
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  if (fields.error()) return fields.error();

  RenderedChat chat;
  if (auto error = RenderChat(body, model, &chat)) return error;
  GenerationRequest::Prompt prompt;
  prompt.tokens = EncodeChat(chat, model, add_special_tokens);
  if (prompt.tokens.empty()) return InvalidRequest("messages", "the messages make an empty prompt");
  const auto limit = max_completion_tokens ? max_completion_tokens : max_tokens;
  if (auto error = FitContext(limit, model.max_model_len, model, &prompt)) {
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
