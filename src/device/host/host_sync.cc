#include "device/host/host_sync.h"

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "base/check.h"
#include "base/spin.h"

namespace tandem {
namespace {

// A flag's partner usually answers within microseconds; after that, sleep.
constexpr int kSpinsBeforeWaiterSleeps = 2000;

}  // namespace

uint64_t HostEvent::BeginRecord() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void HostEvent::CompleteRecord(uint64_t number) {
  const std::lock_guard lock(mutex_);
  completed_ = std::max(completed_, number);
  completed_changed_.notify_all();
}

uint64_t HostEvent::latest_record() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void HostEvent::WaitFor(uint64_t number) {
  std::unique_lock lock(mutex_);
  completed_changed_.wait(lock, [&] { return completed_ >= number; });
}

void HostEvent::Synchronize() {
  WaitFor(latest_record());
}

bool HostEvent::SynchronizeFor(std::chrono::microseconds timeout) {
  const uint64_t number = latest_record();
  std::unique_lock lock(mutex_);
  return completed_changed_.wait_for(lock, timeout, [&] { return completed_ >= number; });
}

bool HostEvent::Complete() const {
  const std::lock_guard lock(mutex_);
  return completed_ >= recorded_;
}

void HostFlag::Set(uint32_t value) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  while (static_cast<uint32_t>(state) < value &&
         !state_.compare_exchange_weak(state, (state & kAborted) | value, std::memory_order_release)) {
  }
  state_.notify_all();
}

uint32_t HostFlag::value() const {
  return static_cast<uint32_t>(state_.load(std::memory_order_acquire));
}

bool HostFlag::Wait(uint32_t value) {
  for (int spins = 0;; ++spins) {
    const uint64_t state = state_.load(std::memory_order_acquire);
    if ((state & kAborted) != 0) return false;
    if (static_cast<uint32_t>(state) >= value) return true;
    if (spins < kSpinsBeforeWaiterSleeps) {
      CpuRelax();
    } else {
      state_.wait(state, std::memory_order_acquire);
    }
  }
}

void HostFlag::Abort() {
  state_.fetch_or(kAborted, std::memory_order_acq_rel);
  state_.notify_all();
}

bool HostFlag::aborted() const {
  return (state_.load(std::memory_order_acquire) & kAborted) != 0;
}

void HostFlag::Reset() {
  state_.store(0, std::memory_order_release);
}

}  // namespace tandem
