#include "server/messages_request.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/field_reader.h"
#include "server/messages_error.h"
#include "server/messages_translation.h"
#include "server/messages_writer.h"
#include "server/new_ids.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

struct TranslatedMessages {
  ordered_json chat = ordered_json::object();
  std::vector<size_t> tool_indices;  // of chat's tools among the body's
  std::optional<int64_t> max_tokens;
  MessagesWriterOptions writer;
};

// As a field of the answer's prompt: what has no counterpart in a chat is left to the template's default.
std::optional<ApiError> TranslateThinking(FieldReader& fields, TranslatedMessages* translated) {
  constexpr std::array<std::string_view, 3> kTypes = {"enabled", "adaptive", "disabled"};
  constexpr std::array<std::string_view, 2> kDisplays = {"summarized", "omitted"};
  bool thinks = false;
  const ordered_json* thinking = fields.Object("thinking");
  if (fields.error()) return fields.error();
  if (thinking != nullptr) {
    FieldReader reader(*thinking, "thinking.");
    const auto type = reader.OneOf("type", kTypes);
    reader.Int("budget_tokens", 1, std::numeric_limits<int64_t>::max());
    translated->writer.omits_thinking = reader.OneOf("display", kDisplays) == "omitted";
    if (reader.error()) return reader.error();
    if (!type) return MessagesFieldError("thinking.type", "field required");
    thinks = *type != "disabled";
  }
  translated->chat["chat_template_kwargs"] = {{"enable_thinking", thinks}};
  return std::nullopt;
}

// format: of output_config or the older output_format.
std::optional<ApiError> TranslateOutputFormat(const ordered_json& format, const std::string& path,
                                              ordered_json* chat) {
  FieldReader reader(format, path + ".");
  const auto type = reader.String("type");
  const ordered_json* schema = reader.Object("schema");
  if (reader.error()) return reader.error();
  if (type != "json_schema") return MessagesFieldError(path + ".type", "must be \"json_schema\"");
  if (schema == nullptr) return MessagesFieldError(path + ".schema", "field required");
  (*chat)["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "answer"}, {"schema", *schema}, {"strict", true}}}};
  return std::nullopt;
}

std::optional<ApiError> TranslateOutputConfig(FieldReader& fields, ordered_json* chat) {
  constexpr std::array<std::string_view, 5> kEfforts = {"low", "medium", "high", "xhigh", "max"};
  const ordered_json* config = fields.Object("output_config");
  const ordered_json* format = fields.Object("output_format");
  if (fields.error()) return fields.error();
  if (config != nullptr) {
    FieldReader reader(*config, "output_config.");
    if (const auto effort = reader.OneOf("effort", kEfforts)) (*chat)["reasoning_effort"] = *effort;
    const ordered_json* own_format = reader.Object("format");
    if (reader.error()) return reader.error();
    if (own_format != nullptr) return TranslateOutputFormat(*own_format, "output_config.format", chat);
  }
  if (format != nullptr) return TranslateOutputFormat(*format, "output_format", chat);
  return std::nullopt;
}

std::optional<ApiError> TranslateMessagesSampling(FieldReader& fields, ordered_json* chat) {
  constexpr std::array<std::string_view, 2> kServiceTiers = {"auto", "standard_only"};
  fields.Number("temperature", 0, 1);
  fields.Number("top_p", 0, 1);
  fields.Int("top_k", 0, std::numeric_limits<int64_t>::max());
  fields.OneOf("service_tier", kServiceTiers);
  fields.Bool("stream");
  const ordered_json* stop = fields.Find("stop_sequences");
  if (stop != nullptr && !stop->is_array()) {
    fields.Fail("stop_sequences",
                fmt::format("stop_sequences must be a list of strings, not {}", JsonTypeName(*stop)));
  }
  if (fields.error()) return fields.error();
  if (stop != nullptr) (*chat)["stop"] = *stop;
  for (const char* name : {"model", "stream", "temperature", "top_p", "top_k", "seed", "cache_salt"}) {
    if (const ordered_json* value = fields.Find(name)) (*chat)[name] = *value;
  }
  return std::nullopt;
}

std::optional<ApiError> TranslateMessages(const ordered_json& body, const ModelContext& model,
                                          std::vector<std::string>* ignored_fields,
                                          TranslatedMessages* translated) {
  if (auto error = JudgeBody(body, RequestRoute::kMessages, model, ignored_fields)) return error;
  if (auto error = CheckModelName(body, model)) return error;
  FieldReader fields(body);
  translated->max_tokens = fields.Int("max_tokens", 1, std::numeric_limits<int64_t>::max());
  if (fields.error()) return fields.error();
  if (auto error = TranslateMessagesSampling(fields, &translated->chat)) return error;
  if (auto error = TranslateThinking(fields, translated)) return error;
  if (auto error = TranslateOutputConfig(fields, &translated->chat)) return error;
  if (auto error = TranslateMessagesConversation(body, &translated->chat)) return error;
  return TranslateMessagesTools(body, &translated->chat, &translated->tool_indices);
}

// What a chat's field is called here; its members follow.
struct ChatFieldName {
  std::string_view of_chat;
  std::string_view here;
};

constexpr std::array kChatFieldNames = {
    ChatFieldName{"stop", "stop_sequences"},
    ChatFieldName{"response_format.json_schema.schema", "output_config.format.schema"},
    ChatFieldName{"response_format.json_schema", "output_config.format"},
    ChatFieldName{"response_format", "output_config.format"},
    ChatFieldName{"reasoning_effort", "output_config.effort"},
    ChatFieldName{"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    ChatFieldName{"tool_choice.function.name", "tool_choice.name"},
    ChatFieldName{"chat_template_kwargs", "thinking"},
};

bool BeginsPath(std::string_view path, std::string_view beginning) {
  return path.starts_with(beginning) &&
         (path.size() == beginning.size() || path[beginning.size()] == '.' || path[beginning.size()] == '[');
}

// "tools[1].function.parameters.x" -> "tools.4.input_schema.x"; those of messages keep the chat's numbers.
std::string PathHere(std::string path, const std::vector<size_t>& tool_indices) {
  for (const ChatFieldName& name : kChatFieldNames) {
    if (!BeginsPath(path, name.of_chat)) continue;
    path.replace(0, name.of_chat.size(), name.here);
    break;
  }
  constexpr std::string_view kTools = "tools[";
  if (path.starts_with(kTools)) {
    const size_t end = path.find(']');
    size_t index = 0;
    for (size_t i = kTools.size(); i < end && i < path.size(); ++i) {
      index = index * 10 + static_cast<size_t>(path[i] - '0');
    }
    if (end != std::string::npos && index < tool_indices.size()) {
      std::string rest = path.substr(end + 1);
      constexpr std::string_view kFunction = ".function";
      if (BeginsPath(rest, kFunction)) rest.erase(0, kFunction.size());
      constexpr std::string_view kParameters = ".parameters";
      if (BeginsPath(rest, kParameters)) rest.replace(0, kParameters.size(), ".input_schema");
      path = fmt::format("tools.{}{}", tool_indices[index], rest);
    }
  }
  return path;
}

// Names the field of the body that a chat's error is about.
ApiError RewordChatError(ApiError error, const std::vector<size_t>& tool_indices) {
  if (error.param.empty()) return error;
  const std::string path = PathHere(error.param, tool_indices);
  if (path != error.param) {
    const size_t at = error.message.find(error.param);
    if (at != std::string::npos) error.message.replace(at, error.param.size(), path);
  }
  if (error.message.find(path) == std::string::npos) error.message = path + ": " + error.message;
  error.param = path;
  return error;
}

// Clients look for this beginning, and then shorten what they send.
ApiError PromptTooLong(const TranslatedMessages& translated, const ModelContext& model, ApiError error) {
  RenderedChat rendered;
  if (RenderChat(translated.chat, model, &rendered)) return error;
  error.message = fmt::format("prompt is too long: {} tokens > {} maximum",
                              EncodeChat(rendered, model, false).size(), model.max_model_len - 1);
  return error;
}

}  // namespace

std::optional<ApiError> ParseMessagesRequest(const ordered_json& body, const ModelContext& model,
                                             GenerationRequest* request) {
  request->answer_id = "msg_" + NewId();
  TranslatedMessages translated;
  if (auto error = TranslateMessages(body, model, &request->ignored_fields, &translated)) return error;
  if (!translated.max_tokens) return MessagesFieldError("max_tokens", "field required");
  request->make_writer = [options = translated.writer](const AnswerWriterContext& context) {
    return MakeMessagesWriter(context, options);
  };
  // As a default it is bounded by what is left of the context.
  ModelContext bounded = model;
  bounded.default_max_tokens = *translated.max_tokens;
  auto error = ParseChatRequest(translated.chat, bounded, request);
  if (!error) {
    // Named if it cannot be compiled.
    if (request->grammar_spec) {
      std::string& param = request->grammar_spec->param;
      param = PathHere(std::move(param), translated.tool_indices);
    }
    return std::nullopt;
  }
  if (error->code == "context_length_exceeded") return PromptTooLong(translated, model, std::move(*error));
  return RewordChatError(std::move(*error), translated.tool_indices);
}

std::optional<ApiError> CountMessagesTokens(const ordered_json& body, const ModelContext& model,
                                            int64_t* num_tokens) {
  TranslatedMessages translated;
  std::vector<std::string> ignored_fields;
  if (auto error = TranslateMessages(body, model, &ignored_fields, &translated)) return error;
  RenderedChat rendered;
  if (auto error = RenderChat(translated.chat, model, &rendered)) {
    return RewordChatError(std::move(*error), translated.tool_indices);
  }
  *num_tokens = std::ssize(EncodeChat(rendered, model, false));
  return std::nullopt;
}

}  // namespace tandem
