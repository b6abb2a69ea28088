// SIGTERM and SIGINT as calls on a thread of their own.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace tandem {

// One at a time. Construct before any other thread starts: threads inherit the blocked signals.
class ShutdownSignals {
 public:
  // on_signal: called on the signal thread with 1, 2, ...; false lets the signal do what it does by default.
  explicit ShutdownSignals(std::function<bool(int count)> on_signal);
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

 private:
  void Wait();

  std::function<bool(int)> on_signal_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem
