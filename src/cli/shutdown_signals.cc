#include "cli/shutdown_signals.h"

#include <csignal>
#include <ctime>
#include <utility>

namespace tandem {
namespace {

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

sigset_t ShutdownSignals::Signals() const {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (on_hangup_) sigaddset(&signals, SIGHUP);
  return signals;
}

ShutdownSignals::ShutdownSignals(std::function<bool(int)> on_signal, std::function<void()> on_hangup)
    : on_signal_(std::move(on_signal)), on_hangup_(std::move(on_hangup)) {
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
    if (signal == SIGHUP) {
      on_hangup_();
    } else if (signal > 0 && !on_signal_(++count)) {
      RaiseDefault(signal);
    }
  }
}

}  // namespace tandem
