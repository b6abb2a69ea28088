// The blocks of a sequence that moves to the other tier.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/iteration_plan.h"

namespace tandem {

// As many in the destination as in the source; both in the order of the sequence's tokens.
struct BlockMove {
  SequenceId sequence = 0;
  Tier to = Tier::kGpu;
  std::vector<int32_t> source_blocks;
  std::vector<int32_t> destination_blocks;
};

}  // namespace tandem
