// /v1/completions, /v1/chat/completions, /tokenize and /detokenize.
#include <functional>
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

void SubmitGeneration(ApiState& state, GenerationRequest request,
                      const std::shared_ptr<HttpExchange>& exchange, const RequestTrace& trace,
                      std::chrono::steady_clock::time_point arrival) {
  const uint64_t id = state.next_generation_id++;
  Generation::Environment environment{.engine = state.engine.load(),
                                      .metrics = state.metrics.get(),
                                      .outputs = state.outputs,
                                      .served_model_name = state.options.served_model_name,
                                      .trace = trace};
  auto generation =
      std::make_shared<Generation>(id, std::move(environment), std::move(request), exchange, arrival);
  // Gone while it was parsed: never submitted, but counted.
  if (!exchange->connected()) return generation->Abort();
  exchange->SetDisconnectCallback([&state, id] {
    const auto found = state.generations.find(id);
    if (found == state.generations.end()) return;
    const auto gone = std::move(found->second);
    state.generations.erase(found);
    gone->Abort();
  });
  state.generations.emplace(id, generation);
  generation->Start();
  if (generation->done()) state.generations.erase(id);
}

ApiError GrammarError(const Error& error, const std::string& param) {
  ApiError answer = FromError(error);
  if (answer.status == 400) answer.param = param;
  answer.message = param + ": " + answer.message;
  return answer;
}

using GrammarCompiled = std::function<void(GenerationRequest, std::optional<ApiError>)>;

// Compiles what the answer has to follow, if anything, then goes on with `then` on the io thread.
void CompileGrammar(ApiState& state, GenerationRequest request, GrammarCompiled then) {
  if (!request.grammar_spec) return then(std::move(request), std::nullopt);
  // What `then` holds belongs to the io thread: it is moved out of this there.
  struct Waiting {
    GenerationRequest request;
    GrammarCompiled then;
  };
  GrammarSpec spec = request.grammar_spec->spec;
  auto waiting = std::make_shared<Waiting>(Waiting{std::move(request), std::move(then)});
  state.grammars->Compile(std::move(spec), [&state, waiting](GrammarCompiler::Answer answer) {
    state.http->Post([waiting, answer = std::move(answer)]() mutable {
      std::optional<ApiError> error;
      if (answer.ok()) {
        waiting->request.grammar = std::move(*answer);
      } else {
        error = GrammarError(answer.error(), waiting->request.grammar_spec->param);
      }
      const GrammarCompiled go_on = std::move(waiting->then);
      go_on(std::move(waiting->request), std::move(error));
    });
  });
}

std::optional<ApiError> CheckObject(const ordered_json& body, const ModelContext& model) {
  if (!body.is_object()) return InvalidRequest("", "the request body must be a JSON object");
  return CheckModelName(body, model);
}

std::optional<ApiError> PrepareTokenize(const ordered_json& body, const ModelContext& model,
                                        PreparedBody* output) {
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
                                          PreparedBody* output) {
  if (auto error = CheckObject(body, model)) return error;
  FieldReader fields(body);
  const auto tokens = fields.TokenIds("tokens", model.tokenizer->vocab_size());
  if (fields.error()) return fields.error();
  if (!tokens) return InvalidRequest("tokens", "tokens is missing");
  output->body = DumpJson({{"prompt", model.tokenizer->Decode(*tokens, false)}});
  return std::nullopt;
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

void StartGeneration(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange,
                     ParseRequest parse, HttpResponse (*error_response)(const ApiError&)) {
  const auto arrival = request.received;
  const RequestTrace trace = RequestTrace::Begin(state.tracer.get(), request);
  GenerationRequest initial;
  initial.error_response = error_response;
  if (state.access->keeps_caches_apart()) initial.cache_sharing.key_name = request.key_name;
  PrepareThen<GenerationRequest>(
      state, std::move(request), std::move(exchange), trace, std::move(initial), std::move(parse),
      [&state, arrival, trace](GenerationRequest parsed, std::shared_ptr<HttpExchange> answer) {
        NoteIgnoredFields(state, parsed.ignored_fields);
        CompileGrammar(state, std::move(parsed),
                       [&state, arrival, trace, answer = std::move(answer)](
                           GenerationRequest ready, std::optional<ApiError> error) mutable {
                         const auto exchange_of_it = std::move(answer);
                         if (!error)
                           return SubmitGeneration(state, std::move(ready), exchange_of_it, trace, arrival);
                         trace.Fail(*error);
                         exchange_of_it->Respond(ready.error_response(*error));
                       });
      });
}

void CreateCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseCompletionRequest);
}

void CreateChatCompletion(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  StartGeneration(state, std::move(request), std::move(exchange), &ParseChatRequest);
}

void Tokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  PrepareThen<PreparedBody>(state, std::move(request), std::move(exchange), {}, {}, &PrepareTokenize,
                            &RespondBody);
}

void Detokenize(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  PrepareThen<PreparedBody>(state, std::move(request), std::move(exchange), {}, {}, &PrepareDetokenize,
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
