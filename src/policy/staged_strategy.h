// A strategy that is NEO's stages (planning/neo_stages.h) with aims of its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "planning/planning_input.h"
#include "policy/strategy.h"

namespace tandem {

class StagedStrategy : public Strategy {
 public:
  StagedStrategy(const Aims& aims, const LayerCosts* costs) : Strategy(costs), aims_(aims) {}
  std::string_view name() const override { return aims_.name; }
  bool uses_cpu_tier() const override { return true; }
  bool rides() const override { return aims_.overlap != OverlapChoice::kAsymmetric; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;
  int64_t SteadyCpuRows(SteadyWork work) const override;

  // Tests move its constants.
  PlannerTuning& tuning() { return tuning_; }

 protected:
  IterationPlan PlanWith(const Aims& aims, const ScheduleState& state, const CapacityView& capacity) const;

 private:
  const Aims aims_;
  PlannerTuning tuning_;
};

}  // namespace tandem
