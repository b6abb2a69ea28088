#include "tracing/otlp_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <utility>

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Kind = OtlpOutcome::Kind;

constexpr size_t kMaxAnswerBytes = size_t{64} << 10;
constexpr int kMaxRetryAfterSeconds = 3600;

Kind KindOfStatus(int status) {
  if (status >= 200 && status < 300) return Kind::kTaken;
  const bool passes = status == 429 || status == 502 || status == 503 || status == 504;
  return passes ? Kind::kBusy : Kind::kRefused;
}

// Seconds; a date is not read: the backoff will do.
std::chrono::milliseconds ParseRetryAfter(const std::string& header) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (error != std::errc() || end != header.data() + header.size() || seconds < 0) return {};
  return std::chrono::seconds(std::min(seconds, kMaxRetryAfterSeconds));
}

}  // namespace

Result<std::unique_ptr<OtlpSender>> OtlpSender::Make(const OtlpOptions& options) {
  std::shared_ptr<const TlsContext> tls;
  if (options.url.https) {
    TANDEM_ASSIGN_OR_RETURN(tls, MakeClientTlsContext(options.ca_file));
  }
  return std::unique_ptr<OtlpSender>(new OtlpSender(options, std::move(tls)));
}

OtlpSender::OtlpSender(const OtlpOptions& options, std::shared_ptr<const TlsContext> tls)
    : options_(options),
      tls_(std::move(tls)),
      io_(1),
      stop_by_(TimePoint::max().time_since_epoch().count()) {}

OtlpSender::~OtlpSender() {
  if (connection_) connection_->Close();
  // Handlers that hold the connection run, or go with the context.
  io_.restart();
  io_.poll();
}

void OtlpSender::StopBy(TimePoint deadline) {
  stop_by_ = deadline.time_since_epoch().count();
  // Whoever runs handlers looks at the time again.
  asio::post(io_, [] {});
}

bool OtlpSender::RunUntil(const bool& done, TimePoint deadline) {
  while (!done) {
    const TimePoint until = std::min(deadline, TimePoint(TimePoint::duration(stop_by_.load())));
    if (std::chrono::steady_clock::now() >= until) return false;
    io_.restart();
    io_.run_one_until(until);
  }
  return true;
}

std::vector<tcp::endpoint> OtlpSender::Resolve(TimePoint deadline, std::string* error) {
  // The operating system's resolver cannot be hurried: it may end long after it was wanted.
  struct Resolution {
    bool done = false;
    boost::system::error_code failure;
    std::vector<tcp::endpoint> endpoints;
  };
  const auto resolution = std::make_shared<Resolution>();
  tcp::resolver resolver(io_);
  resolver.async_resolve(
      options_.url.host, options_.url.port,
      [resolution](const boost::system::error_code& failure, const tcp::resolver::results_type& results) {
        resolution->done = true;
        resolution->failure = failure;
        for (const auto& entry : results) resolution->endpoints.push_back(entry.endpoint());
      });
  if (!RunUntil(resolution->done, deadline)) *error = "its name was not found in time";
  if (resolution->failure) *error = resolution->failure.message();
  return resolution->endpoints;
}

OtlpOutcome OtlpSender::Exchange(const std::string& request, TimePoint deadline) {
  OtlpOutcome outcome;
  int status = 0;
  bool done = false;
  HttpConnection* const connection = connection_.get();
  connection->Send(request, {.on_head =
                                 [&](int code) {
                                   status = code;
                                   outcome.retry_after = ParseRetryAfter(connection->Header("Retry-After"));
                                 },
                             .on_body =
                                 [&](std::string_view piece) {
                                   outcome.body += piece.substr(0, kMaxAnswerBytes - outcome.body.size());
                                 },
                             .on_end =
                                 [&](const std::string& error) {
                                   outcome.error = error;
                                   done = true;
                                 }});
  if (!RunUntil(done, deadline)) {
    connection->Close();
    outcome.error = "there was no answer in time";
    return outcome;
  }
  if (!outcome.error.empty()) return outcome;
  outcome.kind = KindOfStatus(status);
  if (outcome.kind != Kind::kTaken) outcome.error = fmt::format("HTTP {}", status);
  return outcome;
}

OtlpOutcome OtlpSender::Post(const std::string& body) {
  const TimePoint deadline = std::chrono::steady_clock::now() + options_.timeout;
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: OTel-OTLP-Exporter-Tandem/{}\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n",
      options_.url.path, options_.url.Authority(), options_.version, body.size());
  for (const auto& [name, value] : options_.headers) request += fmt::format("{}: {}\r\n", name, value);
  request += "\r\n";
  request += body;
  if (connection_ && connection_->reusable()) {
    OtlpOutcome outcome = Exchange(request, deadline);
    // The receiver may have closed the connection meanwhile.
    if (outcome.kind != Kind::kUnreachable || connection_->has_answer()) return outcome;
  }
  OtlpOutcome outcome;
  const std::vector<tcp::endpoint> endpoints = Resolve(deadline, &outcome.error);
  for (const tcp::endpoint& endpoint : endpoints) {
    if (connection_) connection_->Close();
    connection_ = std::make_shared<HttpConnection>(&io_, HttpAddress{endpoint, tls_, options_.url.host});
    outcome = Exchange(request, deadline);
    if (outcome.kind != Kind::kUnreachable || connection_->has_answer()) break;
  }
  return outcome;
}

}  // namespace tandem
