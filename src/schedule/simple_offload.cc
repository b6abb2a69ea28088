#include "schedule/simple_offload.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan SimpleOffloadStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kUnified, state, capacity, costs_).Plan();
}

}  // namespace tandem
