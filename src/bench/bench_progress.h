// Progress of a benchmark on stderr: a bar on a terminal, a log line every 10 % otherwise, of the requests or
// of the time that the benchmark is to take.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/request_recorder.h"

namespace tandem {

// One thread.
class BenchProgress {
 public:
  // duration_s: 0 if it takes until all requests have ended.
  BenchProgress(std::string title, int64_t num_requests, double duration_s);
  // Clears the bar.
  ~BenchProgress();
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

  void Show(const RequestRecorder::Progress& progress);
  // How often Show is worth a call.
  std::chrono::milliseconds interval() const;

 private:
  const std::string title_;
  const int64_t num_requests_;
  const double duration_s_;
  const bool is_terminal_;
  const Clock::time_point start_;
  int64_t last_logged_tenth_ = 0;
};

}  // namespace tandem
