#include "schedule/async.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan AsyncStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kRiding, state, capacity, costs_).Plan();
}

}  // namespace tandem
