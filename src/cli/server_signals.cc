#include "cli/server_signals.h"

#include <csignal>
#include <ctime>
#include <utility>

namespace tandem {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Ends the process as if nobody had caught the signal.
void RaiseDefault(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(signal);
}

}  // namespace

ServerSignals::ServerSignals(std::function<bool(int)> on_stop, std::function<bool()> on_reload)
    : on_stop_(std::move(on_stop)), on_reload_(std::move(on_reload)) {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

ServerSignals::~ServerSignals() {
  stopping_ = true;
  thread_.join();
}

void ServerSignals::Wait() {
  const sigset_t signals = Signals();
  constexpr timespec kPollInterval{.tv_sec = 0, .tv_nsec = 50'000'000};
  int count = 0;
  while (!stopping_) {
    const int signal = sigtimedwait(&signals, nullptr, &kPollInterval);
    if (signal <= 0) continue;
    const bool is_handled = signal == SIGHUP ? on_reload_() : on_stop_(++count);
    if (!is_handled) RaiseDefault(signal);
  }
}

}  // namespace tandem
