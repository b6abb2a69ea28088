#include "schedule/full_offload.h"

#include "schedule/neo_planner.h"

namespace tandem {

IterationPlan FullOffloadStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  return NeoPlanner(name(), CpuUse::kAll, state, capacity, costs_).Plan();
}

}  // namespace tandem
