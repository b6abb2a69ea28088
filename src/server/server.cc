#include "server/server.h"

#include <fmt/format.h>

#include <ctime>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/engine.h"
#include "server/api_error.h"
#include "server/api_state.h"
#include "server/router.h"

namespace tandem {
namespace {

HttpResponse OptionsResponse(const HttpRequest& request, const std::string& allowed_methods) {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {{"Allow", allowed_methods}};
  if (IsPreflight(request)) {
    for (HttpHeader& header : PreflightHeaders(request, allowed_methods)) {
      response.headers.push_back(std::move(header));
    }
  }
  return response;
}

bool IsKnownPath(std::string_view path) {
  return !FindRoute("GET", path).allowed_methods.empty();
}

// A path that exists as it came stays as it is: a prefix may be called like one of them.
void RemoveRootPath(const std::string& root_path, HttpRequest* head) {
  const std::string_view path = head->Path();
  if (root_path.empty() || !path.starts_with(root_path) || IsKnownPath(path)) return;
  if (path.size() > root_path.size() && path[root_path.size()] != '/') return;
  head->target.erase(static_cast<size_t>(path.data() - head->target.data()), root_path.size());
}

HttpAdmission Admit(const ApiState& state, HttpRequest* head, bool loopback_only) {
  RemoveRootPath(state.options.root_path, head);
  const std::string_view path = head->Path();
  const RouteMatch match = FindRoute(head->method, path);
  const PathKind kind = path.empty() ? PathKind::kWebPage : match.kind;
  AccessDecision decision = state.access->Judge(*head, kind, loopback_only);
  HttpAdmission admission{.refusal = std::nullopt,
                          .headers = std::move(decision.headers),
                          .key_name = std::move(decision.key_name)};
  if (decision.refusal) admission.refusal = match.error_response(*decision.refusal);
  return admission;
}

void Dispatch(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const std::string path(request.Path());
  // Without the slash the page's files would be looked for beside it.
  if (path.empty()) {
    return exchange->Respond({.status = 308,
                              .content_type = {},
                              .headers = {{"Location", state.options.root_path + "/"}},
                              .body = {}});
  }
  const RouteMatch match = FindRoute(request.method, path);
  if (match.allowed_methods.empty()) {
    return exchange->Respond(ErrorResponse({.status = 404,
                                            .message = fmt::format("There is nothing at {}.", path),
                                            .param = {},
                                            .code = "unknown_url"}));
  }
  if (request.method == "OPTIONS") return exchange->Respond(OptionsResponse(request, match.allowed_methods));
  if (match.route == nullptr) {
    HttpResponse response = match.error_response(
        {.status = 405,
         .message = fmt::format("{} does not take {}, only {}.", path, request.method, match.allowed_methods),
         .param = {},
         .code = "method_not_allowed"});
    response.headers.push_back({"Allow", match.allowed_methods});
    return exchange->Respond(std::move(response));
  }
  if (match.route->needs_model) {
    if (const auto error = NotServing(state)) return exchange->Respond(match.error_response(*error));
  }
  match.route->endpoint(state, std::move(request), std::move(exchange));
}

HttpResponse HttpLayerError(int status, std::string_view message) {
  std::string code = "bad_request";
  if (status == 408) code = "request_timeout";
  if (status == 413) code = "request_too_large";
  if (status == 431) code = "headers_too_large";
  if (status == 500) code = "internal_error";
  if (status == 503) code = "unavailable";
  return ErrorResponse(
      {.status = status, .message = std::string(message), .param = {}, .code = std::move(code)});
}

// How the model's chat template shows messages, tools and reasoning.
void DescribeTemplate(ApiState* state) {
  ModelContext& model = state->model;
  if (model.chat_template == nullptr) return;
  const std::string& source = model.chat_template->source();
  model.tool_format = state->options.tool_format.value_or(ChooseToolFormat(source));
  model.reasons = ReasoningInTemplate(source);
  model.template_habits =
      FindTemplateHabits(*model.chat_template, {{"add_generation_prompt", false},
                                                {"bos_token", model.tokenizer->bos_token()},
                                                {"eos_token", model.tokenizer->eos_token()}});
}

void WarnOfOpenDoor(const ApiState& state) {
  if (state.http->loopback_only() || state.access->has_keys()) return;
  LogWarn(
      "everyone who reaches {} port {} may use this server: set keys (--api-key-file, TANDEM_API_KEY) or "
      "listen "
      "on 127.0.0.1",
      state.options.http.host, state.http->port());
}

}  // namespace

Server::Server(std::unique_ptr<ApiState> state) : state_(std::move(state)) {}

Server::~Server() {
  Stop();
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto state = std::make_unique<ApiState>();
  state->created = static_cast<int64_t>(std::time(nullptr));
  TANDEM_ASSIGN_OR_RETURN(state->access, AccessRules::Make(options.access));
  state->responses = std::make_unique<ResponseStore>(options.responses);
  ApiState* raw = state.get();
  if (!options.access_log.empty()) {
    TANDEM_ASSIGN_OR_RETURN(state->access_log, AccessLog::Open(options.access_log));
    options.http.answered = [raw](const HttpAnswerRecord& record) {
      raw->access_log->Write(AccessLogLine(record));
    };
  }
  if (options.tracing) {
    TANDEM_ASSIGN_OR_RETURN(state->tracer, Tracer::Start(*options.tracing));
  }
  // What is answered depends on who asks: no cache gives it to others.
  options.http.answer_headers = {{"Vary", "Origin"}};
  options.http.admit = [raw](HttpRequest* head, bool loopback_only) {
    return Admit(*raw, head, loopback_only);
  };
  state->options = std::move(options);
  TANDEM_ASSIGN_OR_RETURN(state->http,
                          HttpServer::Listen(
                              state->options.http,
                              [raw](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
                                Dispatch(*raw, std::move(request), std::move(exchange));
                              },
                              &HttpLayerError));
  WarnOfOpenDoor(*state);
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

void Server::SetEngine(Engine* engine) {
  ApiState* state = state_.get();
  state->metrics = std::make_unique<ServerMetrics>(engine, state->options.served_model_name);
  state->model = {.served_model_name = state->options.served_model_name,
                  .model_aliases = state->options.model_aliases,
                  .tokenizer = &engine->tokenizer(),
                  .chat_template = engine->chat_template(),
                  .defaults = engine->generation_defaults(),
                  .max_model_len = engine->max_model_len(),
                  .hidden_size = engine->model_config().hidden_size,
                  .pooling = engine->model_config().pooling,
                  .generates = engine->model_config().generates,
                  .special_tokens_in_content = state->options.special_tokens_in_content,
                  .reject_unknown_fields = state->options.reject_unknown_fields,
                  .default_max_tokens = state->options.default_max_tokens};
  DescribeTemplate(state);
  const std::vector<int32_t>& end_tokens = state->model.defaults.eos_token_ids;
  state->grammars = std::make_unique<GrammarCompiler>(
      MakeGrammarVocabulary(engine->tokenizer(), engine->model_config().vocab_size, end_tokens),
      GrammarLimits{});
  state->outputs =
      std::make_shared<OutputQueue>([state] { state->http->Post([state] { DeliverOutputs(*state); }); });
  state->tiers.Begin(engine, state->metrics.get(), state->http.get(), &state->draining);
  state->engine = engine;
}

bool Server::Reload() {
  if (state_->access_log) state_->access_log->Reopen();
  if (!state_->options.http.tls.given()) return state_->access_log != nullptr;
  const Status reloaded = state_->http->ReloadTls();
  if (reloaded.ok()) {
    LogInfo("new connections get the certificate that {} has now", state_->options.http.tls.certificate);
  } else {
    LogError("the certificate stays the one before: {}", reloaded.error().message);
  }
  return true;
}

void Server::BeginDrain() {
  state_->draining = true;
  state_->http->CloseAfterAnswers();
}

bool Server::WaitUntilIdle(std::chrono::milliseconds timeout) const {
  constexpr std::chrono::milliseconds kPollInterval{5};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (state_->http->num_active_exchanges() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

void Server::Stop() {
  state_->http->Stop();
}

std::string Server::url() const {
  const std::string& host = state_->options.http.host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", state_->options.http.tls.given() ? "https" : "http", is_v6 ? "[" : "",
                     host, is_v6 ? "]" : "", state_->http->port());
}

}  // namespace tandem
