#include "schedule/symmetric.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan SymmetricStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kHalves, state, capacity, costs_).Plan();
}

}  // namespace tandem
