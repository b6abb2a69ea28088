#include "collective/rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/spin.h"

namespace tandem {
namespace {

// Shards in step are apart by microseconds.
constexpr int kSpinsBeforeSleep = 500;
constexpr std::chrono::milliseconds kLongestLook{50};

}  // namespace

Rendezvous::Rendezvous(int size, std::chrono::milliseconds timeout, std::function<void(int rank)> on_late)
    : timeout_(timeout), on_late_(std::move(on_late)), arrivals_(static_cast<size_t>(size)) {}

bool Rendezvous::AllHere(uint64_t number) const {
  return std::ranges::all_of(arrivals_, [number](const Arrivals& arrivals) {
    return arrivals.number.load(std::memory_order_acquire) >= number;
  });
}

int Rendezvous::FirstMissing(uint64_t number) const {
  const auto found = std::ranges::find_if(arrivals_, [number](const Arrivals& arrivals) {
    return arrivals.number.load(std::memory_order_acquire) < number;
  });
  return static_cast<int>(found - arrivals_.begin());
}

bool Rendezvous::Arrive(int rank) {
  const uint64_t number =
      arrivals_[static_cast<size_t>(rank)].number.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (AllHere(number)) {
    // So that nobody falls asleep between a look at the arrivals and the wait.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
    return !aborted_.load(std::memory_order_acquire);
  }
  for (int spins = 0; spins < kSpinsBeforeSleep; ++spins) {
    if (AllHere(number)) return !aborted_.load(std::memory_order_acquire);
    CpuRelax();
  }
  const std::chrono::milliseconds look = std::min(kLongestLook, timeout_);
  std::chrono::milliseconds waited{0};
  std::unique_lock lock(mutex_);
  while (true) {
    const bool ended = changed_.wait_for(lock, look, [&] { return aborted_.load() || AllHere(number); });
    if (ended) return !aborted_.load();
    waited += look;
    if (waited < timeout_) continue;
    lock.unlock();
    if (!AllHere(number)) on_late_(FirstMissing(number));
    return !aborted_.load();
  }
}

void Rendezvous::Abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_.store(true);
  }
  changed_.notify_all();
}

}  // namespace tandem
