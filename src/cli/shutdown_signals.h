// SIGTERM and SIGINT, and SIGHUP if wanted, as calls on a thread of their own.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace tandem {

// One at a time. Construct before any other thread starts: threads inherit the blocked signals.
class ShutdownSignals {
 public:
  // on_signal: called on the signal thread with 1, 2, ...; false lets the signal do what it does by default.
  // on_hangup: called there at each SIGHUP, which does what it does by default if this is null.
  explicit ShutdownSignals(std::function<bool(int count)> on_signal,
                           std::function<void()> on_hangup = nullptr);
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

 private:
  void Wait();
  sigset_t Signals() const;

  std::function<bool(int)> on_signal_;
  std::function<void()> on_hangup_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem
