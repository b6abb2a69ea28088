// Planning the next iteration while one runs: what queues and cache will be like when it has ended, if every
// sequence goes on unless its length ends it, and every cohort makes the visits planned.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "execute/iteration_result.h"
#include "kv/capacity_view.h"
#include "plan/iteration_plan.h"
#include "planning/schedule_state.h"

namespace tandem {

struct StateAhead {
  ScheduleState state;
  std::unordered_set<SequenceId> ended;  // by length, with the iteration that runs
};

// Of the cohorts in flight: the step's is at layer `cursor` now; at kEntry it has ended a token, or not begun
// one, and is none of them.
void MoveCohort(const CohortStep& step, int64_t cursor, std::vector<InFlightCohort>* cohorts);

// now: the queues with what `running` admitted, without the cohorts that it dropped; sequences that have
// ended since it began are not among them. ends_by_length: whether a sequence ends with its next token.
StateAhead AdvanceState(const ScheduleState& now, const IterationPlan& running, int64_t num_layers,
                        const std::function<bool(SequenceId)>& ends_by_length);

// The cache as it will be when the ended sequences have given back their blocks. Both outlive it.
class CapacityAhead : public CapacityView {
 public:
  CapacityAhead(const CapacityView& now, const std::unordered_set<SequenceId>& ended);
  int64_t block_size() const override { return now_.block_size(); }
  int64_t total_blocks(Tier tier) const override { return now_.total_blocks(tier); }
  int64_t free_blocks(Tier tier) const override {
    return now_.free_blocks(tier) + freed_blocks_[static_cast<size_t>(tier)];
  }
  int64_t blocks_without_loss(Tier tier) const override { return now_.blocks_without_loss(tier); }
  std::optional<Holding> holding_of(SequenceId sequence) const override {
    return ended_.contains(sequence) ? std::nullopt : now_.holding_of(sequence);
  }
  int64_t blocks_freed_by(SequenceId sequence) const override {
    return ended_.contains(sequence) ? 0 : now_.blocks_freed_by(sequence);
  }
  CachedPrefix cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const override {
    CachedPrefix prefix = now_.cached_prefix(sequence, tier, max_tokens);
    // It may be those that give up their blocks who hold it, and those count as free.
    if (freed_blocks_[static_cast<size_t>(tier)] > 0) prefix.num_unused = prefix.num_blocks;
    return prefix;
  }
  bool is_coming(SequenceId sequence, int64_t num_blocks) const override {
    return now_.is_coming(sequence, num_blocks);
  }
  bool begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const override {
    return now_.begin_alike(a, b, num_blocks);
  }
  int64_t shared_tokens(SequenceId a, SequenceId b) const override {
    return ended_.contains(a) || ended_.contains(b) ? 0 : now_.shared_tokens(a, b);
  }

 private:
  const CapacityView& now_;
  const std::unordered_set<SequenceId>& ended_;
  std::array<int64_t, kNumTiers> freed_blocks_ = {};
};

// Takes out of a plan what names a sequence that has ended against expectation, but for rows of cohorts amid
// a token, which go on for nobody. False if the plan cannot run then: nothing is left, or nothing to ride
// with.
bool DropEnded(const std::function<bool(SequenceId)>& has_ended, IterationPlan* plan);

// Corrects a plan that was made as if every cohort of `ran` made the visits planned, now that progress says
// which did: a cohort that skipped its visit makes it in this plan. Where too many rows would ride at a
// boundary then, those that skipped go first, and others stay where they are. False if the plan cannot run:
// it counts on tokens that are not there. max_rider_rows: PlanRules::max_rider_rows.
bool FollowCohorts(const IterationPlan& ran, const std::vector<CohortProgress>& progress, int64_t num_layers,
                   int64_t max_rider_rows, IterationPlan* plan);

}  // namespace tandem
