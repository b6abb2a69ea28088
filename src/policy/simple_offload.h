// simple-offload: NEO's first strawman (section 3.1, Figure 3).
//
// Every decode in the cpu tier, in one sub-batch with whatever prompts fit. GPU and CPU take turns:
//
//   GPU  | po pr | wait      | po pr | ...
//   CPU  | wait  | ca        | wait  | ...
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class SimpleOffloadStrategy : public StagedStrategy {
 public:
  explicit SimpleOffloadStrategy(const LayerCosts* costs)
      : StagedStrategy({.name = "simple-offload", .cut = CpuRowsCut::kOneBatch}, costs) {}
};

}  // namespace tandem
