#include "collective/cuda/meeting.h"

#include <optional>
#include <thread>

namespace tandem {

void Meeting::Await(int rank) {
  const uint64_t number = 1 + num_arrived_[static_cast<size_t>(rank)].fetch_add(1, std::memory_order_acq_rel);
  std::optional<std::chrono::steady_clock::time_point> deadline;
  constexpr int kLooks = 1024;
  for (size_t other = 0; other < num_arrived_.size();) {
    if (num_arrived_[other].load(std::memory_order_acquire) >= number) {
      ++other;
      continue;
    }
    for (int look = 0; look < kLooks && num_arrived_[other].load(std::memory_order_acquire) < number; ++look)
      std::this_thread::yield();
    if (std::atomic_ref(control_->aborted).load(std::memory_order_acquire) != 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (!deadline) deadline = now + timeout_;
    if (now < *deadline) continue;
    std::atomic_ref(control_->late).store(static_cast<uint32_t>(other) + 1, std::memory_order_release);
    std::atomic_ref(control_->aborted).store(1, std::memory_order_release);
  }
}

}  // namespace tandem
