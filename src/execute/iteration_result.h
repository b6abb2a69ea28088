// What came out of an iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/sampled_token.h"
#include "cpu_attention/cpu_attention.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct SequenceResult {
  SequenceId sequence = 0;
  int64_t num_computed = 0;  // tokens in the cache after the iteration
  // Drawn, in the order of their rows: one for a decode or the end of a prompt, several for a draft.
  std::vector<SampledToken> tokens = {};
  // Of the tokens that were given (SpanInput::given_tokens).
  std::vector<SampledToken> prompt_logprobs = {};
  // Hidden states that the embedding of a sequence takes of the iteration (SpanInput::pooling), one behind
  // the other; of the last tokens before num_computed, or with Pooling::kFirst of the first.
  std::vector<float> pooled_rows = {};
  int64_t num_pooled_rows = 0;
  // Its CPU attention did not end: nothing of the above holds.
  bool failed = false;
};

// Where a cohort of the plan is after the iteration.
struct CohortProgress {
  CohortId cohort = 0;
  int64_t cursor = kEntry;  // layer of its next visit; kEntry: its token is done, it is forgotten
  int64_t num_visits = 0;   // made; of a riding cohort 0 if its attention was not done in time
};

struct IterationResult {
  // When the compute stream began and ended, in nanoseconds of the device's own clock.
  int64_t device_begin_ns = 0;
  int64_t device_end_ns = 0;
  bool as_graph = false;  // replayed, not enqueued op by op
  // What CPU attention did for it (and for cohorts of other iterations meanwhile).
  CpuAttentionStats cpu_attention;
  // CPU attention did not end: results of the sequences concerned have failed, and no plan may use the cpu
  // tier before CpuTierUsable.
  bool stalled = false;
  // Main sub-batch (gpu tier: spans of several rows or of a prompt, then decodes; spans in transit; spans
  // attended in the cpu tier; each in the plan's order), then cohorts that finished their token, or after a
  // stall all that were in flight.
  std::vector<SequenceResult> sequences;
  // A shard of several does not answer: nothing else is here, and nothing can be started any more.
  std::optional<Error> failure = std::nullopt;
  // Of the plan's cohorts, in their order. After a stall all cohorts are forgotten, those of other plans too.
  std::vector<CohortProgress> cohorts;
};

}  // namespace tandem
