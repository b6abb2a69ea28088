// How large an executor is.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/timeline.h"
#include "collective/collective.h"
#include "cpu_attention/cpu_attention.h"

namespace tandem {

struct ExecutorOptions {
  int64_t max_rows = 0;     // of the main sub-batch
  int64_t max_context = 0;  // tokens of the longest sequence; 0: what a tier holds
  // In the tables of an iteration's sequences of the gpu tier together, which is more than it has where many
  // begin with the same blocks. 0: as many as it has.
  int64_t max_table_blocks = 0;
  // The rest is used if the cache has a cpu tier.
  CpuAttentionOptions cpu_attention;
  // Cpu decodes of the main sub-batch; and rows of all cohorts of an iteration together that do not ride. 0:
  // max_rows.
  int64_t max_cpu_rows = 0;
  int64_t max_rider_rows = 0;   // that ride at one boundary; 0: cohorts cannot ride
  int64_t max_flight_rows = 0;  // of all cohorts in flight together; 0: max_cpu_rows
  // Contexts of an iteration's prefills to the cpu tier, with those of a cohort in transit.
  int64_t max_transit_tokens = 0;
  // Without any progress for so long CPU attention counts as stalled.
  std::chrono::milliseconds stall_timeout{10'000};
  // Batch sizes for which iterations that only decode are recorded as graphs; empty: all are enqueued op by
  // op.
  std::vector<int64_t> graph_batch_sizes;
  // For each of those sizes also graphs with so many rows for riders at every boundary.
  std::vector<int64_t> graph_rider_rows;
  int64_t logits_slice_rows = 128;  // rows of logits in memory at once; at least the largest graph's
  Timeline* timeline = nullptr;     // outlives the executor
  // Of a shard, by which all decide alike who rides: null for a whole model, else it outlives the executor.
  Collective* rider_collective = nullptr;

  // These options with every 0 that stands for another number replaced, and without riders where there is no
  // cpu tier.
  ExecutorOptions Complete(bool cpu_tier) const;
};

}  // namespace tandem
