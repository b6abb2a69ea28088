#include "bench/http_target.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "bench/completion_event.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using EndKind = RequestEnd::Kind;

constexpr std::chrono::seconds kWatchInterval{2};
constexpr std::chrono::seconds kMaxConnectTime{30};
// A request may wait long in a server's queue; a server that says nothing for so long is gone.
constexpr std::chrono::seconds kMaxSilence{600};
constexpr size_t kMaxErrorBodyBytes = size_t{64} << 10;
constexpr int kTooManyRequests = 429;
constexpr int kServiceUnavailable = 503;

}  // namespace

HttpTarget::HttpTarget(asio::io_context* io, const CompletionServer& server,
                       const std::vector<WorkloadRequest>& requests, bool return_token_ids,
                       RequestRecorder* recorder, RequestEndCallback on_end)
    : io_(io),
      server_(server),
      address_{{asio::ip::make_address(server.address), server.port}, server.tls, server.url.host},
      return_token_ids_(return_token_ids),
      requests_(requests.size()),
      recorder_(recorder),
      on_end_(std::move(on_end)),
      silence_timer_(*io) {
  max_tokens_.reserve(requests.size());
  for (const WorkloadRequest& request : requests) max_tokens_.push_back(request.output_tokens);
  WatchSilence();
}

void HttpTarget::SetPrompt(int64_t index, std::vector<int32_t> tokens) {
  const auto request = static_cast<size_t>(index);
  requests_[request] = MakeCompletionRequest(server_, tokens, max_tokens_[request], return_token_ids_);
}

void HttpTarget::Send(int64_t index) {
  Exchange exchange{.connection = nullptr,
                    .events = {},
                    .tokens = StreamTokens(max_tokens_[static_cast<size_t>(index)]),
                    .token_ids = {},
                    .cached_tokens = {},
                    .error_body = {},
                    .error = {},
                    .finish_reason = {}};
  if (!idle_.empty()) {
    exchange.connection = std::move(idle_.back());
    idle_.pop_back();
  }
  Start(index, &under_way_.emplace(index, std::move(exchange)).first->second);
}

void HttpTarget::Start(int64_t index, Exchange* exchange) {
  if (!exchange->connection) exchange->connection = std::make_shared<HttpConnection>(io_, address_);
  // An exchange stays where it is until its end.
  exchange->connection->Send(
      requests_[static_cast<size_t>(index)],
      {.on_head = [exchange](int status) { exchange->status = status; },
       .on_body = [this, exchange](std::string_view piece) { OnBody(exchange, piece); },
       .on_end = [this, index](const std::string& error) { OnConnectionEnd(index, error); }});
}

void HttpTarget::OnBody(Exchange* exchange, std::string_view piece) {
  if (exchange->status != kHttpOk) {
    if (exchange->error_body.size() < kMaxErrorBodyBytes) exchange->error_body += piece;
    return;
  }
  const Clock::time_point now = Clock::now();
  exchange->events.Feed(piece,
                        [this, exchange, now](std::string_view data) { OnEvent(exchange, data, now); });
}

void HttpTarget::OnEvent(Exchange* exchange, std::string_view data, Clock::time_point now) {
  if (data == "[DONE]") {
    exchange->done = true;
    return;
  }
  auto event = ParseCompletionEvent(data);
  if (!event.ok()) {
    if (exchange->error.empty()) exchange->error = event.error().message;
    return;
  }
  if (!event->error.empty() && exchange->error.empty())
    exchange->error = fmt::format("the server said: {}", event->error);
  if (!event->finish_reason.empty()) exchange->finish_reason = event->finish_reason;
  exchange->token_ids.insert(exchange->token_ids.end(), event->token_ids.begin(), event->token_ids.end());
  if (event->cached_tokens) exchange->cached_tokens = event->cached_tokens;
  exchange->tokens.Add(*event, now);
}

void HttpTarget::OnConnectionEnd(int64_t index, const std::string& error) {
  Exchange& exchange = under_way_.at(index);
  const HttpConnection& connection = *exchange.connection;
  // The server may have closed a connection just as it was used again.
  if (!error.empty() && connection.was_reused() && !connection.has_answer() && !exchange.tried_again) {
    exchange.tried_again = true;
    exchange.connection.reset();
    return Start(index, &exchange);
  }
  Finish(index, EndOf(exchange, error));
}

RequestEnd HttpTarget::EndOf(const Exchange& exchange, const std::string& error) {
  const bool answered = error.empty() || exchange.done;
  if (!answered) return {EndKind::kFailed, error};
  if (exchange.status != kHttpOk) {
    const bool rejected = exchange.status == kTooManyRequests || exchange.status == kServiceUnavailable;
    return {rejected ? EndKind::kRejected : EndKind::kFailed,
            fmt::format("HTTP {}: {}", exchange.status, ErrorMessageOf(exchange.error_body))};
  }
  if (!exchange.error.empty()) return {EndKind::kFailed, exchange.error};
  if (exchange.finish_reason.empty()) return {EndKind::kFailed, "the stream ended without a finish reason"};
  if (exchange.finish_reason != "length") {
    return {EndKind::kFailed, fmt::format("ended with finish reason {}", exchange.finish_reason)};
  }
  return {EndKind::kDone, ""};
}

void HttpTarget::Finish(int64_t index, RequestEnd end) {
  const auto node = under_way_.extract(index);
  Exchange& exchange = node.mapped();
  exchange.tokens.Report(index, recorder_);
  end.output_tokens = std::move(exchange.token_ids);
  end.cached_tokens = exchange.cached_tokens;
  if (exchange.connection->reusable()) idle_.push_back(std::move(exchange.connection));
  requests_[static_cast<size_t>(index)] = {};
  on_end_(index, std::move(end));
}

void HttpTarget::Cancel(int64_t index) {
  under_way_.at(index).connection->Close();
  // Whoever cancels learns of the end afterwards.
  asio::post(*io_, [this, index] {
    if (under_way_.contains(index)) Finish(index, {EndKind::kCancelled, ""});
  });
}

void HttpTarget::Close() {
  for (const auto& connection : idle_) connection->Close();
  idle_.clear();
  closed_ = true;
  silence_timer_.cancel();
}

void HttpTarget::WatchSilence() {
  silence_timer_.expires_after(kWatchInterval);
  silence_timer_.async_wait([this](const boost::system::error_code& error) {
    // A wait that had already expired cannot be cancelled any more.
    if (error || closed_) return;
    std::vector<std::pair<int64_t, std::string>> silent;
    for (const auto& [index, exchange] : under_way_) {
      const auto silence = Clock::now() - exchange.connection->last_activity();
      const bool connected = exchange.connection->connected();
      if (silence < (connected ? kMaxSilence : kMaxConnectTime)) continue;
      silent.emplace_back(index, connected
                                     ? fmt::format("the server said nothing for {} s", kMaxSilence.count())
                                     : fmt::format("cannot connect to {}:{}: no answer for {} s",
                                                   address_.endpoint.address().to_string(),
                                                   address_.endpoint.port(), kMaxConnectTime.count()));
    }
    WatchSilence();
    for (auto& [index, reason] : silent) {
      under_way_.at(index).connection->Close();
      Finish(index, {EndKind::kFailed, std::move(reason)});
    }
  });
}

}  // namespace tandem
