// CPU attention whose workers do not come back for a while.
#pragma once

#include <atomic>
#include <thread>

#include "cpu_attention/cpu_attention.h"

namespace tandem {

// Keeps all workers of CPU attention from construction to destruction. attention outlives it.
class HeldWorkers {
 public:
  // Blocks until it has them: until CPU attention has nothing to do.
  explicit HeldWorkers(CpuAttention* attention)
      : thread_([this, attention] {
          attention->RunOnWorkers([this](int) {
            ++num_held_;
            num_held_.notify_all();
            released_.wait(false);
          });
        }) {
    for (int held = num_held_; held < attention->num_threads(); held = num_held_) num_held_.wait(held);
  }
  ~HeldWorkers() {
    released_ = true;
    released_.notify_all();
    thread_.join();
  }
  HeldWorkers(const HeldWorkers&) = delete;
  HeldWorkers& operator=(const HeldWorkers&) = delete;

 private:
  std::atomic<int> num_held_{0};
  std::atomic<bool> released_{false};
  std::thread thread_;  // last: starts when everything it uses exists
};

}  // namespace tandem
