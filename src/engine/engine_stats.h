// What an engine has counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/duration_histogram.h"
#include "engine/strategy_ledger.h"
#include "engine/token_histogram.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"

namespace tandem {

// A consistent snapshot of gauges and counters since the start, or since the last UseStrategy.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t gpu_blocks_total = 0;
  int64_t gpu_blocks_free = 0;
  int64_t cpu_blocks_total = 0;
  int64_t cpu_blocks_free = 0;
  int64_t block_size = 0;         // tokens a block
  int64_t cpu_kv_tokens = 0;      // that the cpu tier's blocks in use have room for
  int64_t max_cpu_kv_tokens = 0;  // at most since the start
  uint64_t iterations = 0;
  uint64_t iterations_ahead = 0;  // of those, enqueued while the one before ran
  uint64_t preemptions = 0;
  std::array<uint64_t, kPreemptionReasons.size()> preemptions_by_reason = {};  // by PreemptionReason
  uint64_t prompt_tokens = 0;  // computed, repeated work after a preemption not counted
  // Of admitted requests that looked for cached blocks: tokens of their prompts, and those that they found.
  uint64_t prefix_queried_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t recomputed_tokens = 0;             // computed again after a preemption
  std::array<int64_t, 2> prefix_blocks = {};  // that can be found, in the gpu tier and in the cpu tier
  // Of cached blocks that routers are told of: all, and those that were dropped because too many waited.
  uint64_t kv_events = 0;
  uint64_t kv_events_dropped = 0;
  uint64_t generation_tokens = 0;   // drawn, those that their client had no use for included
  TokenHistogram iteration_tokens;  // prompt_tokens and generation_tokens of an iteration
  uint64_t rejected_requests = 0;   // queue full
  double busy_seconds = 0;          // time spent in iterations
  // Of the compute stream, by the device's clock: running, and between two iterations that followed each
  // other.
  double gpu_busy_seconds = 0;
  double gpu_gap_seconds = 0;
  double cpu_attention_busy_seconds = 0;  // mean over the workers
  uint64_t cpu_attention_kv_bytes = 0;    // read by them
  // What they would have read had each row read its whole context, without one read for several rows.
  uint64_t cpu_attention_attended_kv_bytes = 0;
  uint64_t swapped_tokens = 0;   // tokens whose KV changed its tier, prefills to the cpu tier included
  uint64_t cpu_tier_tokens = 0;  // of generation_tokens: those of requests whose KV lay in the cpu tier
  // Visits that riding cohorts made, and that they did not make because their attention was not done.
  uint64_t rider_visits = 0;
  uint64_t rider_skips = 0;
  uint64_t transit_visits = 0;  // that cohorts in transit made
  // Of iterations that a cost model predicted: what it said, and how far off it was (absolute values).
  double predicted_seconds = 0;
  double prediction_error_seconds = 0;
  DurationHistogram iteration;  // device time of an iteration
  DurationHistogram schedule;   // host time of a plan, most of it while the device runs
  std::map<std::string, uint64_t> strategy_iterations;
  // What the strategy goes by, and what came of it.
  std::string current_strategy;  // empty: no iteration has ended
  StrategyAccounts strategies;
  // Times what the measured costs say: what iterations without cpu rows, with two sub-batches and with riders
  // take, by IterationKind.
  std::array<double, kNumIterationKinds> iteration_factors = {1, 1, 1};
  // Likewise CPU attention, and what the GPU does in iterations that wait for it: by that their rows are cut.
  double cpu_attention_factor = 1;
  double gpu_beside_cpu_attention_factor = 1;
  double hand_over_us = 0;  // LayerCosts::HandOverUs, as learned
};

}  // namespace tandem
