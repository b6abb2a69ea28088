// Models, the prefix cache, health, version, metrics and the web page.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/api_state.h"
#include "server/json_text.h"
#include "server/process_metrics.h"
#include "server/web_page.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

void RespondJson(const std::shared_ptr<HttpExchange>& exchange, const ordered_json& body) {
  HttpResponse response;
  response.body = DumpJson(body);
  exchange->Respond(std::move(response));
}

// Of one of its names. Beside OpenAI's fields max_model_len, which vLLM has too, and what is Tandem's: the
// tiers.
ordered_json ModelCard(const ApiState& state, const std::string& name) {
  const Engine* const engine = state.engine.load();
  const EngineStats stats = engine->Stats();
  return {{"id", name},
          {"object", "model"},
          {"created", state.created},
          {"owned_by", "tandem"},
          {"root", state.options.served_model_name},
          {"parent", nullptr},
          {"max_model_len", state.model.max_model_len},
          {"kv_cache_tokens",
           {{"gpu", stats.gpu_blocks_total * stats.block_size},
            {"cpu", stats.cpu_blocks_total * stats.block_size}}},
          {"strategy", engine->options().strategy}};
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace

std::optional<ApiError> NotServing(const ApiState& state) {
  if (state.draining)
    return Unavailable("The server is shutting down and takes no new requests.", "draining");
  if (state.engine.load() == nullptr) return Unavailable("The model is still being loaded.", "loading");
  return std::nullopt;
}

// Every endpoint has the signature of api_state.h; these answer at once and only read what others keep.
// NOLINTBEGIN(performance-unnecessary-value-param)
void ListModels(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  ordered_json cards = ordered_json::array({ModelCard(state, state.model.served_model_name)});
  for (const std::string& alias : state.model.model_aliases) cards.push_back(ModelCard(state, alias));
  RespondJson(exchange, {{"object", "list"}, {"data", std::move(cards)}});
}

void RetrieveModel(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string id = PercentDecode(request.Path().substr(kPrefix.size()));
  if (!state.model.HasName(id)) return exchange->Respond(ErrorResponse(ModelNotFound(id)));
  RespondJson(exchange, ModelCard(state, id));
}

// What of a tokenizer_config.json clients need that tokenize with /tokenize.
void TokenizerInfo(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  const Tokenizer& tokenizer = *state.model.tokenizer;
  const ChatTemplate* const chat_template = state.model.chat_template;
  RespondJson(exchange,
              {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"bos_token", TextOrNull(tokenizer.bos_token())},
               {"eos_token", TextOrNull(tokenizer.eos_token())},
               {"pad_token", TextOrNull(tokenizer.eos_token())},
               {"vocab_size", tokenizer.vocab_size()},
               {"model_max_length", state.model.max_model_len},
               {"chat_template",
                chat_template == nullptr ? ordered_json(nullptr) : ordered_json(chat_template->source())}});
}

// As vLLM's answers, whose clients look at the status alone. Requests in flight keep what they use.
void ResetPrefixCache(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  state.engine.load()->ForgetPrefixes();
  exchange->Respond({.content_type = {}, .headers = {}, .body = {}});
}

void Health(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  if (const auto error = NotServing(state)) return exchange->Respond(ErrorResponse(*error));
  RespondJson(exchange, {{"status", "ok"}});
}

void Ready(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  if (const auto error = NotServing(state)) return exchange->Respond(ErrorResponse(*error));
  RespondJson(exchange, {{"status", "ready"}});
}

void Version(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  RespondJson(exchange, {{"version", state.options.version}});
}

void Metrics(ApiState& state, HttpRequest /*request*/, std::shared_ptr<HttpExchange> exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const bool loaded = state.engine.load() != nullptr;
  response.body = fmt::format(
      "# HELP tandem:model_loaded Whether the model is loaded.\n# TYPE tandem:model_loaded gauge\n"
      "tandem:model_loaded {}\n",
      loaded ? 1 : 0);
  response.body += RenderProcessMetrics(ReadProcessUsage());
  if (state.tracer) response.body += RenderTraceMetrics(state.tracer->counts());
  if (loaded) response.body += state.metrics->Render();
  exchange->Respond(std::move(response));
}

void WebPage(ApiState& /*state*/, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const WebAsset* asset = FindWebAsset(request.Path());
  HttpResponse response;
  response.content_type = std::string(WebContentType(asset->path));
  response.headers = {{"Cache-Control", "no-cache"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Content-Security-Policy",
                       "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                       "object-src 'none'"},
                      {"X-Frame-Options", "DENY"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  response.body = std::string(asset->content);
  exchange->Respond(std::move(response));
}

// NOLINTEND(performance-unnecessary-value-param)

}  // namespace tandem
