#include "policy/apex.h"

#include <algorithm>

#include "perf/time_model.h"
#include "planning/apex_model.h"

namespace tandem {

IterationPlan ApexStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  IterationPlan plan = Choose(state, capacity);
  // Its inequalities choose anew in every iteration.
  if (plan.promise.strategy != "gpu-only") plan.promise.strategy = name();
  return plan;
}

IterationPlan ApexStrategy::Choose(const ScheduleState& state, const CapacityView& capacity) const {
  const Aims pipelined = {.name = "asymmetric", .admits_for_riding = true};
  IterationPlan asymmetric = PlanWith(pipelined, state, capacity);
  const IterationLoad load = TimeModel(costs()).LoadOf(asymmetric);
  int64_t num_scheduled_cpu = load.main_cpu_rows;
  for (const CohortStep& step : asymmetric.cohorts) {
    if (!step.rides && !step.in_transit()) num_scheduled_cpu += NumRowsOf(step.rows);
  }
  const bool any_cpu_decodes =
      std::any_of(state.running.begin(), state.running.end(), [&](const ScheduledSequence& each) {
        return each.decoding() && capacity.tier_of(each.id) == Tier::kCpu;
      });
  const ApexTimes times = TimesFrom(load, costs());
  const auto is_chunk = [](const RowSpan& span) { return span.attention == Tier::kGpu && !span.is_decode(); };
  const auto num_prefills = static_cast<int64_t>(
      std::count_if(asymmetric.main.spans.begin(), asymmetric.main.spans.end(), is_chunk));
  // Nobody can ride where nobody passes by.
  const bool can_ride = state.can_ride() && (num_prefills > 0 || load.gpu_decode_rows > 0);
  if (!can_ride ||
      ChooseStrategy(any_cpu_decodes, num_prefills, num_scheduled_cpu, times) != ApexChoice::kAsynchronous)
    return asymmetric;
  const Aims riding = {.name = "async", .overlap = OverlapChoice::kAsynchronous};
  return PlanWith(riding, state, capacity);
}

}  // namespace tandem
