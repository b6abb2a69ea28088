// symmetric: NEO's second strawman (section 3.1, Figure 4).
//
// Every decode in the cpu tier, in two halves that read the same number of KV tokens; whatever prompts fit
// are prefilled in the first:
//
//   GPU  | po0 pr0 | wait | po1 pr1 | wait | ...
//   CPU  | ca1            | ca0            | ...
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class SymmetricStrategy : public StagedStrategy {
 public:
  explicit SymmetricStrategy(const LayerCosts* costs)
      : StagedStrategy({.name = "symmetric", .cut = CpuRowsCut::kHalves}, costs) {}
};

}  // namespace tandem
