// apex: the paper's own choice (APEX section 3.4, algorithms 1 and 2).
//
//   no cpu decodes                                        gpu-only
//   asymmetric pipelining finds no cpu decode that hides  async
//   decodes only, (5) holds / with prefill, (8) holds     asymmetric
//   otherwise                                             async
//
// The two schedules are those of asymmetric and async. Weak points of (8): schedule/apex_model.h; `auto`
// decides by predicted throughput instead.
#pragma once

#include <string_view>

#include "schedule/strategy.h"

namespace tandem {

class ApexStrategy : public Strategy {
 public:
  explicit ApexStrategy(const LayerCosts& costs) : costs_(costs) {}
  std::string_view name() const override { return "apex"; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;

 private:
  const LayerCosts& costs_;
};

}  // namespace tandem
