// What a strategy sees: the queues, the limits and the room. Plain data; a scenario test writes it as text.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kv/capacity_view.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct ScheduledSequence {
  SequenceId id = 0;
  int64_t num_tokens = 0;    // prompt and generated tokens
  int64_t num_computed = 0;  // of which in the cache; 0 while it waits
  bool decoding() const { return num_computed == num_tokens - 1 && num_computed > 0; }
  bool operator==(const ScheduledSequence&) const = default;
};

struct ScheduleLimits {
  int64_t max_num_seqs = 0;            // sequences that hold blocks at once
  int64_t max_num_batched_tokens = 0;  // rows of an iteration
  // Blocks kept free when a new sequence is admitted, so that those already running can grow for a while
  // before one of them has to be preempted.
  int64_t reserve_blocks = 0;
};

// Queues in order of arrival; a preempted sequence waits at the front again.
struct ScheduleState {
  std::deque<ScheduledSequence> waiting;
  std::vector<ScheduledSequence> running;  // hold blocks: prefilling or decoding
  ScheduleLimits limits;
};

}  // namespace tandem
