#include "kv_events/kv_event_queue.h"

#include <utility>

namespace tandem {

void KvEventQueue::Push(double unix_seconds, KvEvents events) {
  const std::lock_guard lock(mutex_);
  const uint64_t sequence_number = next_sequence_number_++;
  counts_.events += events.size();
  if (batches_.size() >= max_batches_) {
    counts_.dropped_events += events.size();
    return;
  }
  batches_.push_back({sequence_number, unix_seconds, std::move(events)});
}

std::optional<KvEventBatch> KvEventQueue::Take() {
  const std::lock_guard lock(mutex_);
  if (batches_.empty()) return std::nullopt;
  KvEventBatch batch = std::move(batches_.front());
  batches_.pop_front();
  return batch;
}

bool KvEventQueue::empty() const {
  const std::lock_guard lock(mutex_);
  return batches_.empty();
}

KvEventCounts KvEventQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace tandem
