// Carries engine outputs from the engine thread to the io thread: one wake-up for however many outputs an
// iteration has.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "request/request_output.h"

namespace tandem {

struct SequenceOutput {
  uint64_t generation_id = 0;
  size_t choice_index = 0;
  RequestOutput output;
  std::chrono::steady_clock::time_point time;
};

// Any thread.
class OutputQueue {
 public:
  // wake: called on the pushing thread when the queue stops being empty; must not block.
  explicit OutputQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Push(SequenceOutput output) {
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      was_empty = outputs_.empty();
      outputs_.push_back(std::move(output));
    }
    if (was_empty) wake_();
  }

  std::vector<SequenceOutput> TakeAll() {
    const std::lock_guard lock(mutex_);
    return std::exchange(outputs_, {});
  }

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<SequenceOutput> outputs_;
};

}  // namespace tandem
