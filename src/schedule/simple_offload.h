// simple-offload: NEO's first strawman (section 3.1, Figure 3).
//
// Every decode in the cpu tier, in one sub-batch with whatever prompts fit. GPU and CPU take turns:
//
//   GPU  | po pr | wait      | po pr | ...
//   CPU  | wait  | ca        | wait  | ...
#pragma once

#include <string_view>

#include "schedule/strategy.h"

namespace tandem {

class SimpleOffloadStrategy : public Strategy {
 public:
  explicit SimpleOffloadStrategy(const LayerCosts& costs) : costs_(costs) {}
  std::string_view name() const override { return "simple-offload"; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;

 private:
  const LayerCosts& costs_;
};

}  // namespace tandem
