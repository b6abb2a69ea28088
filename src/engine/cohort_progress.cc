// What the engine loop knows of cohorts that are amid a token.

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "engine/engine_loop.h"

namespace tandem {

void EngineLoop::DropCohort(CohortId id) {
  std::erase_if(state_.cohorts, [id](const InFlightCohort& each) { return each.cohort == id; });
  planned_ahead_.reset();
  if (executor_->DropCohort(id)) return;
  // It has forgotten all of them.
  state_.cohorts.clear();
  state_.cpu_tier_usable = false;
  cpu_tier_fails_ = true;
}

void EngineLoop::DropCohortOf(SequenceId sequence) {
  for (const InFlightCohort& cohort : state_.cohorts) {
    const bool has_row = std::any_of(cohort.rows.begin(), cohort.rows.end(),
                                     [&](const DecodeRow& row) { return row.sequence == sequence; });
    if (!has_row) continue;
    DropCohort(cohort.cohort);
    return;
  }
}

void EngineLoop::TakeProgress(const IterationPlan& plan, const IterationResult& result) {
  if (result.stalled) {
    state_.cohorts.clear();
    planned_ahead_.reset();
    return;
  }
  TANDEM_CHECK(result.cohorts.size() == plan.cohorts.size(), "progress of {} cohorts, the plan has {}",
               result.cohorts.size(), plan.cohorts.size());
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    const CohortStep& step = plan.cohorts[i];
    const CohortProgress& progress = result.cohorts[i];
    if (step.rides) {
      ++(progress.num_visits > 0 ? counters_.rider_visits : counters_.rider_skips);
    }
    MoveCohort(step, progress.cursor, &state_.cohorts);
  }
  if (planned_ahead_ && !FollowCohorts(plan, result.cohorts, options_.num_layers,
                                       options_.limits.max_rider_rows, &*planned_ahead_))
    planned_ahead_.reset();
}

}  // namespace tandem
