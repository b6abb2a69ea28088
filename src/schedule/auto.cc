#include "schedule/auto.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan AutoStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kBest, state, capacity, costs_).Plan();
}

}  // namespace tandem
