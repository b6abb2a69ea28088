#include "schedule/asymmetric.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan AsymmetricStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kHidden, state, capacity, costs_).Plan();
}

}  // namespace tandem
