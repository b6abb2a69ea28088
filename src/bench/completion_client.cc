#include "bench/completion_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "bench/completion_event.h"
#include "http_client/http_connection.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using nlohmann::json;

constexpr std::chrono::seconds kAskTimeout{20};
constexpr int kNotFound = 404;

struct Answer {
  int status = 0;
  std::string body;
  std::string error;  // why there is none
};

std::string KeyHeader(const std::string& api_key) {
  return api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", api_key);
}

Answer Get(const HttpAddress& address, const std::string& request) {
  asio::io_context io;
  const auto connection = std::make_shared<HttpConnection>(&io, address);
  Answer answer{.error = fmt::format("no answer for {} s", kAskTimeout.count())};
  connection->Send(request, {.on_head = [&](int status) { answer.status = status; },
                             .on_body = [&](std::string_view piece) { answer.body += piece; },
                             .on_end = [&](const std::string& error) { answer.error = error; }});
  io.run_for(kAskTimeout);
  connection->Close();
  io.restart();
  io.run();
  return answer;
}

std::optional<int64_t> FindInt(const json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < 1) return std::nullopt;
  return found->get<int64_t>();
}

// Takes what {"data": [{"id", "max_model_len", "meta": {"n_vocab"}}]} says of the server's model.
Status ReadModels(std::string_view body, CompletionServer* server) {
  const json root = json::parse(body, nullptr, false);
  const auto data = root.is_object() ? root.find("data") : root.end();
  const bool is_list = root.is_object() && data != root.end() && data->is_array();
  std::vector<std::string> names;
  for (const json& card : is_list ? *data : json::array()) {
    const auto id = card.is_object() ? card.find("id") : card.end();
    if (!card.is_object() || id == card.end() || !id->is_string()) continue;
    names.push_back(id->get<std::string>());
    if (server->model.empty()) server->model = names.back();
    if (server->model != names.back()) continue;
    server->max_model_len = FindInt(card, "max_model_len");
    if (const auto meta = card.find("meta"); meta != card.end())
      server->vocab_size = FindInt(*meta, "n_vocab");
  }
  if (server->model.empty()) {
    return MakeParamError(ErrorCode::kUnavailable, "url",
                          "{}{}/models names no model: use --served-model-name", server->url.Authority(),
                          server->url.path);
  }
  if (names.size() > 1) {
    LogInfo("the server has the models {}; the benchmark asks {}", fmt::join(names, ", "), server->model);
  }
  return {};
}

}  // namespace

Result<CompletionServer> FindCompletionServer(const ServerUrl& url, const std::string& api_key,
                                              const std::string& model, const std::string& ca_file) {
  if (std::any_of(api_key.begin(), api_key.end(), [](char c) { return c < ' ' || c > '~'; })) {
    return MakeParamError(ErrorCode::kInvalidArgument, "api-key",
                          "the key has a character that no header can carry");
  }
  CompletionServer server{.url = url, .api_key = api_key, .model = model, .address = {}, .tls = {}};
  if (url.https) {
    TANDEM_ASSIGN_OR_RETURN(server.tls, MakeClientTlsContext(ca_file));
  }
  asio::io_context io;
  tcp::resolver resolver(io);
  boost::system::error_code failure;
  const auto endpoints = resolver.resolve(url.host, url.port, failure);
  if (failure || endpoints.empty()) {
    return MakeParamError(ErrorCode::kUnavailable, "url", "the host {} is not known: {}", url.host,
                          failure.message());
  }
  const std::string request = fmt::format("GET {}/models HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
                                          url.path, url.Authority(), KeyHeader(api_key));
  Answer answer;
  for (const auto& entry : endpoints) {
    const tcp::endpoint endpoint = entry.endpoint();
    server.address = endpoint.address().to_string();
    server.port = endpoint.port();
    answer = Get({endpoint, server.tls, url.host}, request);
    if (answer.error.empty()) break;
  }
  if (!answer.error.empty()) {
    return MakeParamError(ErrorCode::kUnavailable, "url", "{} does not answer: {}", url.Authority(),
                          answer.error);
  }
  // Some servers have no list of models; the name alone will do.
  if (answer.status == kNotFound && !model.empty()) return server;
  if (answer.status != kHttpOk) {
    return MakeParamError(ErrorCode::kUnavailable, "url", "{}{}/models: HTTP {}: {}", url.Authority(),
                          url.path, answer.status, ErrorMessageOf(answer.body));
  }
  TANDEM_RETURN_IF_ERROR(ReadModels(answer.body, &server));
  return server;
}

std::string MakeCompletionRequest(const CompletionServer& server, const std::vector<int32_t>& prompt_tokens,
                                  int64_t max_tokens, bool return_token_ids) {
  nlohmann::ordered_json fields = {
      {"model", server.model},
      {"max_tokens", max_tokens},
      {"min_tokens", max_tokens},
      {"ignore_eos", true},
      {"temperature", 0},
      {"stream", true},
      {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}};
  if (return_token_ids) fields["return_token_ids"] = true;
  fields.update(server.extra_fields);
  const std::string body = fmt::format(R"({{"prompt":[{}],{})", fmt::join(prompt_tokens, ","),
                                       fields.dump(-1, ' ', false, json::error_handler_t::replace).substr(1));
  return fmt::format(
      "POST {}/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "{}\r\n{}",
      server.url.path, server.url.Authority(), body.size(), KeyHeader(server.api_key), body);
}

}  // namespace tandem
