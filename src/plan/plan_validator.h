// Checks a plan against the rules of plan/iteration_plan.h and the state it was made for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "plan/iteration_plan.h"

namespace tandem {

// What the validator must know of a sequence when the plan was made.
struct PlannedSequence {
  int64_t num_tokens = 0;    // prompt and generated tokens
  int64_t num_computed = 0;  // of which in the cache
  std::optional<Tier> tier;  // absent: holds no blocks
  // Position of the first row that is to give logits: absent: that of the last token.
  std::optional<int64_t> first_logits = std::nullopt;
  int64_t num_drafted = 0;  // tokens proposed behind num_tokens
  // By tier, tokens that it may be attached to: of its first blocks.
  std::array<int64_t, kNumTiers> num_cached = {};
};

struct PlanRules {
  int64_t num_layers = 0;
  int64_t max_rows = 0;        // of the main sub-batch and all cohorts that do not ride together
  int64_t max_rider_rows = 0;  // that ride at one boundary, beside those
  // Those in flight when the plan was made; null: none. Outlives the check.
  const std::vector<InFlightCohort>* in_flight = nullptr;
  std::function<std::optional<PlannedSequence>(SequenceId)> find_sequence;
};

// ok, or an error that names the sequence or cohort and the broken rule. A strategy that makes an invalid
// plan is broken: the engine CHECKs the result.
Status ValidatePlan(const IterationPlan& plan, const PlanRules& rules);

}  // namespace tandem
