// Events on their way from the engine thread to the thread that publishes them.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "kv_events/kv_event.h"

namespace tandem {

struct KvEventBatch {
  uint64_t sequence_number = 0;  // from 0 on; a number that is missing was dropped
  double unix_seconds = 0;
  KvEvents events;
};

struct KvEventCounts {
  uint64_t events = 0;          // that happened
  uint64_t dropped_events = 0;  // of them, those that nobody will be told
};

// Any thread; nothing blocks but for moments.
class KvEventQueue {
 public:
  // max_batches: at least 1.
  explicit KvEventQueue(int64_t max_batches) : max_batches_(static_cast<size_t>(max_batches)) {}

  // Drops the batch where max_batches wait: its number is missing then.
  void Push(double unix_seconds, KvEvents events);
  // The oldest; absent: none waits.
  std::optional<KvEventBatch> Take();
  bool empty() const;
  KvEventCounts counts() const;

 private:
  const size_t max_batches_;
  mutable std::mutex mutex_;
  std::deque<KvEventBatch> batches_;
  uint64_t next_sequence_number_ = 0;
  KvEventCounts counts_;
};

}  // namespace tandem
