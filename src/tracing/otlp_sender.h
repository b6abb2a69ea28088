// One OTLP request after another to one receiver, over a connection that is kept.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "http_client/http_connection.h"
#include "tracing/tracing_options.h"

namespace tandem {

// What became of a request.
struct OtlpOutcome {
  enum class Kind {
    kTaken,
    kBusy,         // it may be sent again: HTTP 429, 502, 503, 504
    kUnreachable,  // it may be sent again: no connection, no answer in time
    kRefused,      // sending it again is no use
  };

  Kind kind = Kind::kUnreachable;
  std::string body;                         // of an answer, its first 64 KiB
  std::string error;                        // one clause; empty if taken
  std::chrono::milliseconds retry_after{};  // what the receiver asks for, 0 if nothing
};

// One thread, but for StopBy.
class OtlpSender {
 public:
  // Errors: those of MakeClientTlsContext, for https.
  static Result<std::unique_ptr<OtlpSender>> Make(const OtlpOptions& options);
  ~OtlpSender();
  OtlpSender(const OtlpSender&) = delete;
  OtlpSender& operator=(const OtlpSender&) = delete;

  // Blocks until there is an outcome, options.timeout at most.
  OtlpOutcome Post(const std::string& body);
  // Any thread: Post, also one under way, ends by then.
  void StopBy(std::chrono::steady_clock::time_point deadline);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  OtlpSender(const OtlpOptions& options, std::shared_ptr<const TlsContext> tls);
  // Empty: error says why.
  std::vector<boost::asio::ip::tcp::endpoint> Resolve(TimePoint deadline, std::string* error);
  OtlpOutcome Exchange(const std::string& request, TimePoint deadline);
  // Runs handlers until *done. False: the time was up.
  bool RunUntil(const bool& done, TimePoint deadline);

  const OtlpOptions options_;
  const std::shared_ptr<const TlsContext> tls_;  // null: plain HTTP
  boost::asio::io_context io_;
  std::shared_ptr<HttpConnection> connection_;  // null until there is one
  std::atomic<TimePoint::rep> stop_by_;
};

}  // namespace tandem
