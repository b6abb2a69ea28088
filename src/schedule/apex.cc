#include "schedule/apex.h"

#include <algorithm>

#include "perf/iteration_load.h"
#include "schedule/apex_model.h"
#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan ApexStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  NeoPlanner pipelined("asymmetric", CpuUse::kHidden, state, capacity, costs_);
  pipelined.AdmitForRiding();
  IterationPlan asymmetric = pipelined.Plan();
  int64_t num_scheduled_cpu = static_cast<int64_t>(asymmetric.main.cpu_decodes.size());
  for (const CohortStep& step : asymmetric.cohorts) {
    if (!step.rides) num_scheduled_cpu += static_cast<int64_t>(step.rows.size());
  }
  const bool any_cpu_decodes =
      std::any_of(state.running.begin(), state.running.end(), [&](const ScheduledSequence& each) {
        return each.decoding() && capacity.tier_of(each.id) == Tier::kCpu;
      });
  const ApexTimes times = TimesFrom(LoadOf(asymmetric, costs_), costs_);
  const auto num_prefills = static_cast<int64_t>(asymmetric.main.prefills.size());
  // Nobody can ride where nobody passes by.
  const bool can_ride = state.can_ride() && (num_prefills > 0 || !asymmetric.main.gpu_decodes.empty());
  if (!can_ride ||
      ChooseStrategy(any_cpu_decodes, num_prefills, num_scheduled_cpu, times) != ApexChoice::kAsynchronous)
    return asymmetric;
  return NeoPlanner("async", CpuUse::kRiding, state, capacity, costs_).Plan();
}

}  // namespace tandem
