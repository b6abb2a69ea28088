// asymmetric: NEO's asymmetric pipelining and load-aware scheduling (sections 3.1 and 3.2, Figure 5).
//
// Requests live in the gpu tier while it has room, else in the cpu tier as far as the CPU's attention hides
// behind the GPU's work. The main sub-batch (batch-0) has all prefill, all gpu decodes and a few cpu decodes;
// most cpu decodes form a cohort (batch-1) that alternates with it layer by layer:
//
//   GPU  | po0 pr0            | po1 pr1 | ga0      | po0 pr0            | ...
//   CPU  | ca1 (cohort)       | ca0 (main's few)   | ca1                | ...
//
// An iteration is gpu-only where that does more work a microsecond: the plan says so in its strategy name.
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class AsymmetricStrategy : public StagedStrategy {
 public:
  explicit AsymmetricStrategy(const LayerCosts* costs) : StagedStrategy({.name = "asymmetric"}, costs) {}
};

}  // namespace tandem
