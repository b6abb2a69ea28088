// full-offload: NEO's pipeline and scheduler, but every decode in the cpu tier (FastDecode+, NEO
// section 5.1).
//
// The gpu tier holds nothing but prompts that the cpu tier cannot take. Every cpu decode runs in every
// iteration; cohort and main sub-batch are cut where the layer takes least time, so that prefill and one
// sub-batch's linear operations hide the other's attention as far as they can:
//
//   GPU  | po0 pr0 (and prefill) | po1 pr1 | ga0 (prefill) | wait | ...
//   CPU  | ca1                   | ca0                            | ...
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class FullOffloadStrategy : public StagedStrategy {
 public:
  explicit FullOffloadStrategy(const LayerCosts* costs) : StagedStrategy(kOffloadAll, costs) {}
};

}  // namespace tandem
