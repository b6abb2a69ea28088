#include "perf/iteration_load.h"

#include "perf/time_model.h"

namespace tandem {

IterationLoad LoadOf(const IterationPlan& plan, const LayerCosts& costs) {
  return TimeModel(costs).LoadOf(plan);
}

RiderWork RiderWorkOf(const CohortStep& step, const LayerCosts& costs) {
  return TimeModel(costs).RiderWorkOf(step);
}

LayerTimes TimesOf(const IterationLoad& load, const LayerCosts& costs) {
  return TimeModel(costs).TimesOf(load);
}

double IterationUs(const IterationLoad& load, const LayerCosts& costs) {
  return TimeModel(costs).IterationUs(load);
}

}  // namespace tandem
