// Progress of a long read on stderr: a bar on a terminal, a log line every 10 % otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace tandem {

// Every method may be called from any thread.
class LoadProgress {
 public:
  // title: what is read. total_bytes: 0 if unknown; then only Finish says anything.
  LoadProgress(std::string title, uint64_t total_bytes);
  // Finishes, if Finish was not called.
  ~LoadProgress();
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  void Add(uint64_t bytes);
  // Says how much was read, how long it took, at which rate. Only the first call counts.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;

  double SecondsSinceStart() const;
  void DrawBar(uint64_t done_bytes) const;

  const std::string title_;
  const uint64_t total_bytes_;
  const bool is_terminal_;
  const Clock::time_point start_;

  std::mutex mutex_;
  uint64_t done_bytes_ = 0;
  bool finished_ = false;
  Clock::time_point last_draw_;
  uint64_t last_logged_tenth_ = 0;
};

}  // namespace tandem
