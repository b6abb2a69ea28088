// What a strategy sees: the queues, the limits and the room. Plain data; a scenario test writes it as text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kv/capacity_view.h"
#include "plan/iteration_plan.h"
#include "planning/planner_tuning.h"
#include "planning/scheduled_sequence.h"
#include "planning/waiting_queue.h"
#include "planning/work_shape.h"

namespace tandem {

struct ScheduleLimits {
  int64_t max_num_seqs = 0;            // sequences that hold blocks at once
  int64_t max_num_batched_tokens = 0;  // rows of an iteration
  // Blocks kept free at least when a new sequence is admitted (ScheduleState::gpu_blocks_to_keep).
  int64_t reserve_blocks = 0;

  // The rest matters to strategies that use the cpu tier.
  int64_t num_layers = 0;
  // Tokens of context of all prefill chunks to the cpu tier in one iteration, each rounded up to blocks: they
  // pass through a buffer of this size.
  int64_t max_transit_tokens = 0;
  int64_t max_cohort_rows = 0;     // rows of all cohorts together that do not ride
  int64_t max_rider_rows = 0;      // rows that ride at one boundary; 0: cohorts cannot ride
  int64_t max_riding_cohorts = 0;  // that the work is spread over; 0: as many as there are visits to a token
  // An iteration is not to take longer (inter-token latency), if less work is possible; 0: no limit.
  double max_iteration_us = 0;
  // A token of a sequence that is not flexible is not to take longer, if the strategy can choose; 0: no
  // limit.
  double max_tpot_us = 0;

  // Cohorts over which riding rows are spread at most.
  int64_t num_riding_cohorts() const {
    const int64_t num_visits = num_layers + 1;
    return max_riding_cohorts > 0 ? std::min(max_riding_cohorts, num_visits) : num_visits;
  }
};

struct ScheduleState {
  WaitingQueue waiting;
  std::vector<ScheduledSequence> running;  // hold blocks: prefilling or decoding
  // Cohorts that are amid a token. Their sequences are in `running` too, as decodes of that token.
  std::vector<InFlightCohort> cohorts;
  ScheduleLimits limits;
  // What the work to come will be like (planning/work_shape.h).
  double prompt_tokens_per_output = WorkShape::kUnknown;
  double mean_output_tokens = 0;  // 0: not known
  double mean_context = 0;        // tokens that a decode reads; 0: not known
  double num_ended = 0;           // requests that the above is known of: the short ones are first
  double cached_share = 0;        // of prompt tokens
  void SetWorkToCome(const WorkShape& shape) {
    prompt_tokens_per_output = shape.prompt_tokens_per_output();
    mean_output_tokens = shape.mean_output_tokens();
    mean_context = shape.mean_context();
    cached_share = shape.cached_share();
    num_ended = shape.num_ended();
  }
  // False once CPU attention has failed: nothing more may enter the cpu tier or decode there.
  bool cpu_tier_usable = true;

  // Blocks of the gpu tier kept free when a sequence is admitted beside num_others, so that those can grow.
  // While the decodes of a tier take the tokens of one output, whatever their number, one of them ends on
  // average. most: that are worth keeping, beside reserve_blocks.
  int64_t gpu_blocks_to_keep(int64_t num_others, int64_t block_size, int64_t most) const {
    if (num_others == 0) return 0;
    const auto output_blocks =
        static_cast<int64_t>(std::ceil(mean_output_tokens / static_cast<double>(block_size)));
    return std::max(limits.reserve_blocks, std::min(output_blocks, most));
  }

  bool can_ride() const { return limits.max_rider_rows > 0 && limits.max_cohort_rows > 0 && cpu_tier_usable; }
};

}  // namespace tandem
