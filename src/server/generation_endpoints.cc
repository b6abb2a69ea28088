// /v1/completions, /v1/chat/completions, /tokenize and /detokenize.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "server/api_state.h"
#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/prepare_request.h"
#include "server/request_fields.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

void StartGeneration(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange,
                     std::optional<ApiError> (*parse)(const ordered_json&, const ModelContext&,
                                                      GenerationRequest*)) {
  const auto arrival = request.received;
  PrepareThen<GenerationRequest>(
      state, std::move(request), std::move(exchange), parse,
      [&state, arrival](GenerationRequest generation_request, const std::shared_ptr<HttpExchange>& answer) {
        NoteIgnoredFields(state, generation_request.ignored_fields);
        const uint64_t id = state.next_generation_id++;
        Generation::Environment environment{.engine = state.engine.load(),
                                            .metrics = state.metrics.get(),
                                            .outputs = state.outputs,
                                            .served_model_name = state.options.served_model_name};
        auto generation = std::make_shared<Generation>(id, std::move(environment),
                                                       std::move(generation_request), answer, arrival);
        // Gone while it was parsed: never submitted, but counted.
        if (!answer->connected()) return generation->Abort();
        answer->SetDisconnectCallback([&state, id] {
          const auto found = state.generations.find(id);
          if (found == state.generations.end()) return;
          const auto gone = std::move(found->second);
          state.generations.erase(found);
          gone->Abort();
        });
        state.generations.emplace(id, generation);
        generation->Start();
        if (generation->done()) state.generations.erase(id);
      });
}

struct TokenizeOutput {
  std::string body;
};

std::optional<ApiError> CheckObject(const ordered_json& body, const ModelContext& model) {
  if (!body.is_object()) return InvalidRequest("", "the request body must be a JSON object");
  return CheckModelName(body, model);
}

std::optional<ApiError> PrepareTokenize(const ordered_json& body, const ModelContext& model,
                                        TokenizeOutput* output) {
  if (auto error = CheckObject(body, model)) return error;
  FieldReader fields(body);
  const bool is_chat = fields.Find("messages") != nullptr;
  RenderedChat chat;
  std::string text;
  if (is_chat) {
    if (fields.Find("prompt") != nullptr) fields.Fail("prompt", "give either prompt or messages, not both");
    if (!fields.error()) {
      if (auto error = RenderChat(body, model, &chat)) return error;
    }
  } else if (auto prompt = fields.String("prompt")) {
    text = std::move(*prompt);
  } else {
    fields.Fail("prompt", "prompt or messages is missing");
  }
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(!is_chat);
  const bool return_token_strs = fields.Bool("return_token_strs").value_or(false);
  if (fields.error()) return fields.error();
  const std::vector<int32_t> tokens = is_chat ? EncodeChat(chat, model, add_special_tokens)
                                              : model.tokenizer->Encode(text, add_special_tokens);
  ordered_json token_strs = nullptr;
  if (return_token_strs) {
    token_strs = ordered_json::array();
    for (const int32_t token : tokens) token_strs.push_back(model.tokenizer->TokenBytes(token));
  }
  output->body = DumpJson({{"count", tokens.size()},
                           {"max_model_len", model.max_model_len},
                           {"tokens", tokens},
                           {"token_strs", std::move(token_strs)}});
  return std::nullopt;
}

std::optional<ApiError> PrepareDetokenize(const ordered_json& body, const ModelContext& model,
                                          TokenizeOutput* output) {
  if (auto error = CheckObject(body, model)) return error;
  FieldReader fields(body);
  const auto tokens = fields.TokenIds("tokens", model.tokenizer->vocab_size());
  if (fields.error()) return fields.error();
  if (!tokens) return InvalidRequest("tokens", "tokens is missing");
  output->body = DumpJson({{"prompt", model.tokenizer->Decode(*tokens, false)}});
  return std::nullopt;
}

void RespondBody(TokenizeOutput output, const std::shared_ptr<HttpExchange>& exchange) {
  HttpResponse response;
  response.body = std::move(output.body);
  exchange->Respond(std::move(response));
}

}  // namespace

void NoteIgnoredFields(ApiState& state, const std::vector<std::string>& names) {
  constexpr size_t kMaxLoggedNames = 256;
  if (names.empty()) return;
  state.metrics->CountIgnoredFields(std::ssize(names));
  for (const std::string& name : names) {
    if (state.logged_fields.size() == kMaxLoggedNames) return;
    if (!state.logged_fields.insert(name).second) continue;
    LogWarn(
        "the field {} of a request is unknown and ignored (--unknown-fields reject refuses such requests)",
        IgnoredFieldsHeader({name}));
  }
}

void CreateCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseCompletionRequest);
}

void CreateChatCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseChatRequest);
}

void Tokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  PrepareThen<TokenizeOutput>(state, std::move(request), std::move(exchange), &PrepareTokenize, &RespondBody);
}

void Detokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  PrepareThen<TokenizeOutput>(state, std::move(request), std::move(exchange), &PrepareDetokenize,
                              &RespondBody);
}

void DeliverOutputs(ApiState& state) {
  for (SequenceOutput& output : state.outputs->TakeAll()) {
    const auto found = state.generations.find(output.generation_id);
    if (found == state.generations.end()) {
      DeliverEmbedding(state, std::move(output));
      continue;
    }
    // Sending may find the client gone, and the disconnect callback then erases the entry.
    const std::shared_ptr<Generation> generation = found->second;
    generation->OnOutput(output.choice_index, output.output, output.time);
    if (generation->done()) state.generations.erase(output.generation_id);
  }
}

}  // namespace tandem
