// apex: the paper's own choice (APEX section 3.4, algorithms 1 and 2).
//
//   no cpu decodes                                        gpu-only
//   asymmetric pipelining finds no cpu decode that hides  async
//   decodes only, (5) holds / with prefill, (8) holds     asymmetric
//   otherwise                                             async
//
// The two schedules are those of asymmetric and async. Weak points of (8): planning/apex_model.h; `auto`
// decides by predicted throughput instead.
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class ApexStrategy : public StagedStrategy {
 public:
  explicit ApexStrategy(const LayerCosts* costs)
      : StagedStrategy({.name = "apex", .overlap = OverlapChoice::kAsynchronous}, costs) {}
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;

 private:
  IterationPlan Choose(const ScheduleState& state, const CapacityView& capacity) const;
};

}  // namespace tandem
