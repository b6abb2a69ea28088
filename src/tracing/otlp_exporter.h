// Sends spans to a receiver of OTLP over HTTP, from a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "tracing/otlp_sender.h"
#include "tracing/span.h"
#include "tracing/tracing_options.h"

namespace tandem {

// Spans since the start.
struct OtlpCounts {
  int64_t sent = 0;         // taken by the receiver
  int64_t queue_full = 0;   // dropped: too many waited
  int64_t unreachable = 0;  // dropped: neither taken nor refused in time
  int64_t refused = 0;      // dropped: the receiver does not want them
};

class OtlpExporter {
 public:
  // Errors: those of OtlpSender::Make. That nobody listens there is none.
  static Result<std::unique_ptr<OtlpExporter>> Start(const OtlpOptions& options);
  // Sends what is left, for options.flush_time at most; a receiver that is not there is not waited for.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Any thread; does not block. All of them wait to be sent, or all are dropped.
  void Export(std::vector<Span> spans);
  // Any thread.
  OtlpCounts counts() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  OtlpExporter(const OtlpOptions& options, std::unique_ptr<OtlpSender> sender);
  void Run();
  // Waits until there is something to send. Empty: stopping, and nothing is left.
  std::vector<Span> TakeBatch();
  // Until it is taken, refused, or given up.
  void SendBatch(const std::vector<Span>& batch);
  void CountTaken(const OtlpOutcome& outcome, int64_t num_spans);
  // Before a batch is sent again. False: it is given up.
  bool WaitToRetry(const OtlpOutcome& outcome, std::chrono::milliseconds backoff, TimePoint give_up);

  const OtlpOptions options_;
  const std::unique_ptr<OtlpSender> sender_;  // exporter thread only, but for StopBy
  bool failing_ = false;                      // exporter thread only: the log says so
  std::atomic<int64_t> sent_{0};
  std::atomic<int64_t> queue_full_{0};
  std::atomic<int64_t> unreachable_{0};
  std::atomic<int64_t> refused_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Span> pending_;
  bool dropping_ = false;  // the log says so
  bool stopping_ = false;
  TimePoint stop_by_{};  // with stopping_
  std::thread thread_;
};

}  // namespace tandem
