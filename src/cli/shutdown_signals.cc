#include "cli/shutdown_signals.h"

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

ShutdownSignals::ShutdownSignals(std::function<bool(int)> on_signal) : on_signal_(std::move(on_signal)) {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

ShutdownSignals::~ShutdownSignals() {
  stopping_ = true;
  thread_.join();
}

void ShutdownSignals::Wait() {
  const sigset_t signals = Signals();
  constexpr timespec kPollInterval{.tv_sec = 0, .tv_nsec = 50'000'000};
  int count = 0;
  while (!stopping_) {
    const int signal = sigtimedwait(&signals, nullptr, &kPollInterval);
    if (signal > 0 && !on_signal_(++count)) RaiseDefault(signal);
  }
}

}  // namespace tandem
