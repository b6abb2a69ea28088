#include "policy/staged_strategy.h"

#include <algorithm>
#include <cmath>

#include "planning/neo_stages.h"

namespace tandem {

IterationPlan StagedStrategy::PlanWith(const Aims& aims, const ScheduleState& state,
                                       const CapacityView& capacity) const {
  return PlanByStages({aims, state, capacity, costs(), tuning_});
}

IterationPlan StagedStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return PlanWith(aims_, state, capacity);
}

int64_t StagedStrategy::SteadyCpuRows(SteadyWork work) const {
  if (aims_.offloads_all()) work.gpu_rows = 0;
  const OperatingPoint hidden = FindOperatingPoint(work, Overlap::kAsymmetric, costs(), tuning_);
  if (aims_.overlap == OverlapChoice::kAsymmetric) return hidden.cpu_rows;
  const OperatingPoint riding = FindOperatingPoint(work, Overlap::kAsynchronous, costs(), tuning_);
  if (aims_.overlap == OverlapChoice::kBetter && riding.rate < tuning_.worth_riding * hidden.rate)
    return hidden.cpu_rows;
  const double admitted = std::ceil(tuning_.riding_spare * static_cast<double>(riding.cpu_rows));
  return static_cast<int64_t>(std::min(admitted, work.max_cpu_rows));
}

}  // namespace tandem
