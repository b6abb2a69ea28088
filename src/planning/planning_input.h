// What the stages of a plan are told.
#pragma once

#include <string_view>

#include "kv/capacity_view.h"
#include "perf/layer_costs.h"
#include "planning/planner_tuning.h"
#include "planning/schedule_state.h"

namespace tandem {

// How the decodes of the cpu tier are cut into sub-batches.
enum class CpuRowsCut {
  kHidden,     // as many as hide behind the GPU's work, in cohort and main sub-batch (NEO section 3.2)
  kLeastTime,  // all, where a layer takes least time
  kHalves,     // all, in two halves by KV tokens
  kOneBatch,   // all, in the main sub-batch
};

// Which overlap of the GPU's work and CPU attention a strategy uses.
enum class OverlapChoice {
  kAsymmetric,    // two sub-batches alternate (NEO section 3.1)
  kAsynchronous,  // cohorts ride (APEX section 3.3)
  kBetter,        // the one with the better throughput in the steady state
};

// What a strategy wants of the stages.
struct Aims {
  std::string_view name;  // of its plans, but for those that are gpu-only's; static storage
  CpuRowsCut cut = CpuRowsCut::kHidden;
  OverlapChoice overlap = OverlapChoice::kAsymmetric;
  // The cpu tier takes in as many requests as riding wants, whatever this plan does with them.
  bool admits_for_riding = false;
  // Nobody decodes in the gpu tier while the cpu tier can be used.
  bool offloads_all() const { return cut != CpuRowsCut::kHidden; }
};

// Those of full-offload, and of auto where they pay.
inline constexpr Aims kOffloadAll = {.name = "full-offload", .cut = CpuRowsCut::kLeastTime};

// All outlive the planning.
struct PlanningInput {
  const Aims& aims;
  const ScheduleState& state;
  const CapacityView& capacity;
  const LayerCosts& costs;
  const PlannerTuning& tuning;

  PlanningInput with(const Aims& other) const { return {other, state, capacity, costs, tuning}; }
  bool offloads_all() const { return aims.offloads_all() && state.cpu_tier_usable; }
  int64_t num_visits() const { return costs.num_layers() + 1; }
};

}  // namespace tandem
