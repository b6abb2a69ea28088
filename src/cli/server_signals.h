// SIGTERM, SIGINT and SIGHUP as calls on a thread of their own.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace tandem {

// One at a time. Construct before any other thread starts: threads inherit the blocked signals.
class ServerSignals {
 public:
  // Both are called on the signal thread: on_stop at SIGTERM and SIGINT, with 1, 2, ...; on_reload at SIGHUP.
  // False lets the signal do what it does by default.
  ServerSignals(std::function<bool(int count)> on_stop, std::function<bool()> on_reload);
  ~ServerSignals();
  ServerSignals(const ServerSignals&) = delete;
  ServerSignals& operator=(const ServerSignals&) = delete;

 private:
  void Wait();

  std::function<bool(int)> on_stop_;
  std::function<bool()> on_reload_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem
