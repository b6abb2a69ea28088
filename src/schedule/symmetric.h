// symmetric: NEO's second strawman (section 3.1, Figure 4).
//
// Every decode in the cpu tier, in two halves that read the same number of KV tokens; whatever prompts fit
// are prefilled in the first:
//
//   GPU  | po0 pr0 | wait | po1 pr1 | wait | ...
//   CPU  | ca1            | ca0            | ...
#pragma once

#include <string_view>

#include "schedule/strategy.h"

namespace tandem {

class SymmetricStrategy : public Strategy {
 public:
  explicit SymmetricStrategy(const LayerCosts& costs) : costs_(costs) {}
  std::string_view name() const override { return "symmetric"; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;

 private:
  const LayerCosts& costs_;
};

}  // namespace tandem
