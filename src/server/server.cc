#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "server/api_error.h"
#include "server/api_state.h"
#include "server/router.h"

namespace tandem {
namespace {

// Takes the same time wherever the difference is.
bool EqualKeys(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0U : 1U;
  for (size_t i = 0; i < given.size(); ++i) {
    const unsigned expected = key.empty() ? 0U : static_cast<unsigned char>(key[i % key.size()]);
    difference |= static_cast<unsigned char>(given[i]) ^ expected;
  }
  return difference == 0;
}

bool HasKey(const HttpRequest& request, const std::string& api_key) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = request.Header("Authorization");
  if (header.size() <= kScheme.size() || !EqualsIgnoringCase(header.substr(0, kScheme.size()), kScheme)) {
    return false;
  }
  return EqualKeys(header.substr(kScheme.size()), api_key);
}

std::vector<HttpHeader> CorsHeaders(const std::vector<std::string>& allowed, const HttpRequest& request) {
  const std::string_view origin = request.Header("Origin");
  if (origin.empty()) return {};
  if (std::find(allowed.begin(), allowed.end(), "*") != allowed.end()) {
    return {{"Access-Control-Allow-Origin", "*"}};
  }
  if (std::find(allowed.begin(), allowed.end(), origin) == allowed.end()) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
}

HttpResponse OptionsResponse(const std::string& allowed_methods) {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {{"Allow", allowed_methods},
                      {"Access-Control-Allow-Methods", allowed_methods},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

void Dispatch(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const std::string path(request.Path());
  const RouteMatch match = FindRoute(request.method, path);
  if (match.allowed_methods.empty()) {
    return exchange->Respond(ErrorResponse({.status = 404,
                                            .message = fmt::format("There is nothing at {}.", path),
                                            .param = {},
                                            .code = "unknown_url"}));
  }
  if (request.method == "OPTIONS") return exchange->Respond(OptionsResponse(match.allowed_methods));
  if (match.route == nullptr) {
    HttpResponse response = ErrorResponse(
        {.status = 405,
         .message = fmt::format("{} does not take {}, only {}.", path, request.method, match.allowed_methods),
         .param = {},
         .code = "method_not_allowed"});
    response.headers.push_back({"Allow", match.allowed_methods});
    return exchange->Respond(std::move(response));
  }
  if (match.route->is_api) {
    const bool guarded = !state.options.api_key.empty() && path.starts_with("/v1");
    if (guarded && !HasKey(request, state.options.api_key)) {
      return exchange->Respond(ErrorResponse({.status = 401,
                                              .message = "The API key is missing or wrong.",
                                              .param = {},
                                              .code = "invalid_api_key"}));
    }
    if (const auto error = NotServing(state)) return exchange->Respond(ErrorResponse(*error));
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

}  // namespace

Server::Server(std::unique_ptr<ApiState> state) : state_(std::move(state)) {}

Server::~Server() {
  Stop();
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto state = std::make_unique<ApiState>();
  state->created = static_cast<int64_t>(std::time(nullptr));
  options.http.extra_headers = [allowed = options.allowed_origins](const HttpRequest& request) {
    return CorsHeaders(allowed, request);
  };
  state->options = std::move(options);
  ApiState* raw = state.get();
  TANDEM_ASSIGN_OR_RETURN(state->http,
                          HttpServer::Listen(
                              state->options.http,
                              [raw](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
                                Dispatch(*raw, std::move(request), std::move(exchange));
                              },
                              &HttpLayerError));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

void Server::SetEngine(Engine* engine) {
  ApiState* state = state_.get();
  state->metrics = std::make_unique<ServerMetrics>(engine, state->options.served_model_name);
  state->model = {.served_model_name = state->options.served_model_name,
                  .tokenizer = &engine->tokenizer(),
                  .chat_template = engine->chat_template(),
                  .defaults = engine->generation_defaults(),
                  .max_model_len = engine->max_model_len(),
                  .special_tokens_in_content = state->options.special_tokens_in_content};
  state->outputs =
      std::make_shared<OutputQueue>([state] { state->http->Post([state] { DeliverOutputs(*state); }); });
  state->engine = engine;
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
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", state_->http->port());
}

}  // namespace tandem
