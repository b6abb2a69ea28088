#include "server/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/responses_input.h"
#include "server/responses_writer.h"
#include "server/sse.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Fields that a chat has under the same name.
constexpr auto kSameInChats = std::to_array<std::string_view>({"model",
                                                               "temperature",
                                                               "top_p",
                                                               "top_k",
                                                               "min_p",
                                                               "seed",
                                                               "presence_penalty",
                                                               "frequency_penalty",
                                                               "logit_bias",
                                                               "repetition_penalty",
                                                               "stop",
                                                               "stop_token_ids",
                                                               "min_tokens",
                                                               "ignore_eos",
                                                               "allowed_token_ids",
                                                               "bad_words",
                                                               "service_tier",
                                                               "parallel_tool_calls",
                                                               "stream",
                                                               "cache_salt",
                                                               "chat_template_kwargs",
                                                               "enable_thinking"});
// Fields that the response repeats as they came, null if they did not.
constexpr auto kEchoed = std::to_array<std::string_view>({"instructions", "max_output_tokens",
                                                          "max_tool_calls", "previous_response_id",
                                                          "prompt_cache_key", "safety_identifier", "user"});
constexpr std::string_view kLogprobsInclude = "message.output_text.logprobs";

class ResponsesRequestReader {
 public:
  ResponsesRequestReader(const ordered_json& body, const ModelContext& model, const ResponsesCaller& caller)
      : body_(body), model_(model), caller_(caller), reader_(body) {}

  std::optional<ApiError> Read(GenerationRequest* request);

 private:
  std::optional<ApiError> ReadInput();
  std::optional<ApiError> AddStored(const std::string& id);
  std::optional<ApiError> AddItem(ordered_json item, const std::string& param);
  std::optional<ApiError> FindReferenced(const ordered_json& reference, const std::string& param,
                                         ordered_json* item) const;
  std::optional<ApiError> ReadFields();
  void ReadTextFormat();
  void ReadReasoning();
  void ReadLogprobs();
  std::optional<ApiError> ParseChat(GenerationRequest* request) const;
  std::optional<ApiError> ParseShortened(GenerationRequest* request) const;
  ApiError InOwnWords(ApiError error) const;
  void SetAnswer(GenerationRequest* request);
  void Echo(const GenerationRequest& request);

  const ordered_json& body_;
  const ModelContext& model_;
  const ResponsesCaller& caller_;
  FieldReader reader_;
  std::shared_ptr<ResponsesContext> context_ = std::make_shared<ResponsesContext>();
  ResponsesMessages messages_;
  ordered_json items_ = ordered_json::array();  // all, with ids
  ordered_json chat_ = ordered_json::object();
  std::optional<int64_t> max_output_tokens_;
  bool drops_turns_ = false;
};

std::optional<ApiError> ResponsesRequestReader::Read(GenerationRequest* request) {
  context_->id = caller_.store->NewId();
  request->answer_id = context_->id;
  context_->model = model_.served_model_name;
  context_->created = static_cast<int64_t>(std::time(nullptr));
  if (auto error = JudgeBody(body_, RequestRoute::kResponses, model_, &request->ignored_fields)) return error;
  if (auto error = ReadFields()) return error;
  if (auto error = ReadInput()) return error;
  if (auto error = ReadResponsesTools(body_, &context_->tools)) return error;
  chat_["messages"] = messages_.messages;
  if (!context_->tools.functions.empty()) chat_["tools"] = context_->tools.functions;
  if (!context_->tools.choice.is_null()) chat_["tool_choice"] = context_->tools.choice;
  Echo(*request);
  SetAnswer(request);
  GenerationRequest parsed = *request;
  if (auto error = ParseChat(&parsed)) {
    if (!drops_turns_ || error->code != "context_length_exceeded") return InOwnWords(std::move(*error));
    parsed = *request;
    if (auto still = ParseShortened(&parsed)) return InOwnWords(std::move(*still));
  }
  *request = std::move(parsed);
  Echo(*request);
  // Schemas are judged later.
  if (request->grammar_spec)
    request->grammar_spec->param =
        ResponsesFieldName(request->grammar_spec->param, messages_, context_->tools);
  return std::nullopt;
}

std::optional<ApiError> ResponsesRequestReader::ReadFields() {
  constexpr auto kTruncations = std::to_array<std::string_view>({"auto", "disabled"});
  for (const std::string_view name : kSameInChats) {
    if (const ordered_json* value = reader_.Find(name)) chat_[std::string(name)] = *value;
  }
  max_output_tokens_ = reader_.Int("max_output_tokens", 1, std::numeric_limits<int64_t>::max());
  drops_turns_ = reader_.OneOf("truncation", kTruncations) == "auto";
  reader_.Bool("store");
  ReadTextFormat();
  ReadReasoning();
  ReadLogprobs();
  return reader_.error();
}

void ResponsesRequestReader::ReadTextFormat() {
  const ordered_json* text = reader_.Object("text");
  if (text == nullptr || reader_.error()) return;
  FieldReader text_reader(*text, "text.");
  const ordered_json* format = text_reader.Object("format");
  if (text_reader.error()) return reader_.Fail("text.format", text_reader.error()->message);
  if (format == nullptr) return;
  const auto type = format->find("type");
  if (type == format->end() || !type->is_string()) {
    return reader_.Fail("text.format.type", "text.format.type must be a string");
  }
  if (*type == "text") return;
  ordered_json response_format = {{"type", *type}};
  if (*type == "json_schema") {
    ordered_json& schema = response_format["json_schema"] = ordered_json::object();
    for (const auto& [key, value] : format->items()) {
      if (key != "type") schema[key] = value;
    }
  } else if (*type != "json_object") {
    return reader_.Fail("text.format.type",
                        "text.format.type must be \"text\", \"json_object\" or \"json_schema\"");
  }
  chat_["response_format"] = std::move(response_format);
}

void ResponsesRequestReader::ReadReasoning() {
  const ordered_json* reasoning = reader_.Object("reasoning");
  if (reasoning == nullptr || reader_.error()) return;
  FieldReader reasoning_reader(*reasoning, "reasoning.");
  if (const ordered_json* effort = reasoning_reader.Find("effort")) chat_["reasoning_effort"] = *effort;
  const auto summary = reasoning_reader.String("summary");
  if (reasoning_reader.error()) return reader_.Fail("reasoning.summary", reasoning_reader.error()->message);
  context_->shows_summary = summary && *summary != "none";
}

void ResponsesRequestReader::ReadLogprobs() {
  const auto top_logprobs = reader_.Int("top_logprobs", 0, kMaxTopLogprobs);
  const ordered_json* include = reader_.Find("include");
  if (include != nullptr && !include->is_array()) return reader_.Fail("include", "include must be a list");
  const bool included =
      include != nullptr && std::find(include->begin(), include->end(), kLogprobsInclude) != include->end();
  if (!included && top_logprobs.value_or(0) == 0) return;
  chat_["logprobs"] = true;
  chat_["top_logprobs"] = top_logprobs.value_or(0);
}

std::optional<ApiError> ResponsesRequestReader::ReadInput() {
  const auto instructions = reader_.String("instructions");
  const auto previous = reader_.String("previous_response_id");
  if (reader_.error()) return reader_.error();
  if (instructions) AddInstructions(*instructions, &messages_);
  if (previous) {
    if (auto error = AddStored(*previous)) return error;
  }
  const ordered_json* input = reader_.Find("input");
  if (input == nullptr && !previous) return InvalidRequest("input", "input is missing");
  if (input != nullptr && input->is_string()) {
    const ordered_json part = {{"type", "input_text"}, {"text", *input}};
    if (auto error = AddItem(
            {{"type", "message"}, {"role", "user"}, {"content", ordered_json::array({part})}}, "input")) {
      return error;
    }
  } else if (input != nullptr) {
    if (!input->is_array()) {
      return InvalidRequest(
          "input", fmt::format("input must be a string or a list of items, not {}", JsonTypeName(*input)));
    }
    for (size_t i = 0; i < input->size(); ++i) {
      if (auto error = AddItem((*input)[i], fmt::format("input[{}]", i))) return error;
    }
  }
  FinishMessages(&messages_);
  if (messages_.messages.empty())
    return InvalidRequest("input", "input has nothing that a model could answer");
  return std::nullopt;
}

std::optional<ApiError> ResponsesRequestReader::AddStored(const std::string& id) {
  const std::string param = "previous_response_id";
  const auto stored = caller_.store->Find(id, caller_.key_name);
  if (!stored) {
    ApiError error = ResponseNotFound(id, param);
    error.status = 400;
    error.code = "previous_response_not_found";
    return error;
  }
  // Written by this program from what parsed before.
  const auto before = ordered_json::parse(stored->input);
  const auto response = ordered_json::parse(stored->body);
  for (const auto* items : {&before, &response["output"]}) {
    for (const ordered_json& item : *items) {
      if (auto error = AddItem(item, param)) return error;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> ResponsesRequestReader::AddItem(ordered_json item, const std::string& param) {
  const bool is_object = item.is_object();
  const bool is_reference = is_object && item.value("type", ordered_json()) == "item_reference";
  if (is_reference) {
    ordered_json referenced;
    if (auto error = FindReferenced(item, param, &referenced)) return error;
    item = std::move(referenced);
  }
  if (auto error = AddResponsesItem(item, param, &messages_)) return error;
  const auto id = item.find("id");
  if (id == item.end() || !id->is_string()) {
    item["id"] = ResponseItemId("item", context_->id, fmt::format("i{}", items_.size()));
  }
  items_.push_back(std::move(item));
  return std::nullopt;
}

std::optional<ApiError> ResponsesRequestReader::FindReferenced(const ordered_json& reference,
                                                               const std::string& param,
                                                               ordered_json* item) const {
  FieldReader reader(reference, param + ".");
  const auto id = reader.String("id");
  if (reader.error()) return reader.error();
  if (!id) return InvalidRequest(param + ".id", param + ".id is missing");
  if (const auto stored = caller_.store->Find(ResponseIdOfItem(*id), caller_.key_name)) {
    const auto input = ordered_json::parse(stored->input);
    const auto response = ordered_json::parse(stored->body);
    for (const auto* items : {&response["output"], &input}) {
      for (const ordered_json& candidate : *items) {
        if (candidate.value("id", ordered_json()) != *id) continue;
        *item = candidate;
        return std::nullopt;
      }
    }
  }
  return InvalidRequest(param + ".id", fmt::format("{}.id: there is no stored item {}", param, *id));
}

std::optional<ApiError> ResponsesRequestReader::ParseChat(GenerationRequest* request) const {
  ModelContext model = model_;
  // As what a chat without a bound has: it is cut to what is left of the context.
  if (max_output_tokens_) model.default_max_tokens = *max_output_tokens_;
  return ParseChatRequest(chat_, model, request);
}

// With as few of the oldest turns left out as it takes.
std::optional<ApiError> ResponsesRequestReader::ParseShortened(GenerationRequest* request) const {
  std::vector<size_t> turns;  // where each begins
  for (size_t i = 0; i < messages_.messages.size(); ++i) {
    if (messages_.messages[i]["role"] == "user") turns.push_back(i);
  }
  const auto parse = [&](size_t num_dropped, GenerationRequest* result) {
    ResponsesRequestReader shorter = *this;
    ordered_json& messages = shorter.chat_["messages"];
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(turns[0]),
                   messages.begin() + static_cast<std::ptrdiff_t>(turns[num_dropped]));
    shorter.messages_.params.erase(
        shorter.messages_.params.begin() + static_cast<std::ptrdiff_t>(turns[0]),
        shorter.messages_.params.begin() + static_cast<std::ptrdiff_t>(turns[num_dropped]));
    GenerationRequest attempt = *request;
    auto error = shorter.ParseChat(&attempt);
    if (error) return error;
    *result = std::move(attempt);
    return error;
  };
  size_t low = 1;
  size_t high = turns.empty() ? 0 : turns.size() - 1;  // the last turn stays
  if (high == 0) return ParseChat(request);
  GenerationRequest fitting;
  if (auto error = parse(high, &fitting)) return error;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (parse(middle, &fitting)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  *request = std::move(fitting);
  return std::nullopt;
}

ApiError ResponsesRequestReader::InOwnWords(ApiError error) const {
  const std::string own_name = ResponsesFieldName(error.param, messages_, context_->tools);
  const size_t found = error.param.empty() ? std::string::npos : error.message.find(error.param);
  if (found != std::string::npos) error.message.replace(found, error.param.size(), own_name);
  error.param = own_name;
  return error;
}

void ResponsesRequestReader::Echo(const GenerationRequest& request) {
  ordered_json& echo = context_->echo;
  const auto given = [&](std::string_view name, const ordered_json& otherwise) {
    const ordered_json* value = reader_.Find(name);
    echo[std::string(name)] = value != nullptr ? *value : otherwise;
  };
  for (const std::string_view name : kEchoed) given(name, nullptr);
  given("metadata", ordered_json::object());
  given("parallel_tool_calls", true);
  given("temperature", request.sampling.temperature);
  given("top_p", request.sampling.top_p);
  given("top_logprobs", 0);
  given("tool_choice", "auto");
  given("truncation", "disabled");
  given("text", ordered_json::object());
  if (!echo["text"].contains("format")) echo["text"]["format"] = {{"type", "text"}};
  echo["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  if (const ordered_json* reasoning = reader_.Find("reasoning")) echo["reasoning"].update(*reasoning);
  echo["service_tier"] = request.flexible ? "flex" : "default";
  echo["store"] = caller_.store->enabled() && reader_.Bool("store").value_or(true);
  given("tools", ordered_json::array());
  for (ordered_json& tool : echo["tools"]) {
    if (tool.value("type", ordered_json()) != "function") continue;
    for (const char* const name : {"parameters", "strict"}) tool.emplace(name, nullptr);
  }
}

void ResponsesRequestReader::SetAnswer(GenerationRequest* request) {
  if (context_->echo["store"] == true) {
    context_->keep = [store = caller_.store, key_name = caller_.key_name, id = context_->id,
                      input = DumpJson(items_)](const ordered_json& response) {
      store->Add(id, key_name, {.body = DumpJson(response), .input = input});
    };
  }
  request->make_writer = [context = context_](const AnswerWriterContext& writer_context) {
    return std::make_unique<ResponsesWriter>(writer_context, context);
  };
  if (!reader_.Bool("stream").value_or(false)) return;
  // Clients of streams understand this error only there.
  request->error_response = [context = context_](const ApiError& error) {
    if (error.code != "context_length_exceeded") return ErrorResponse(error);
    return HttpResponse{.content_type = std::string(kSseContentType),
                        .headers = {{"Cache-Control", "no-cache"}},
                        .body = FailedResponseStream(*context, error)};
  };
}

}  // namespace

std::optional<ApiError> ParseResponsesRequest(const ordered_json& body, const ModelContext& model,
                                              const ResponsesCaller& caller, GenerationRequest* request) {
  return ResponsesRequestReader(body, model, caller).Read(request);
}

ApiError ResponseNotFound(std::string_view id, std::string param) {
  return {.status = 404,
          .message = fmt::format("There is no response with the id '{}'.", id),
          .param = std::move(param),
          .code = "not_found"};
}

}  // namespace tandem
