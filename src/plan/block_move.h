// A sequence's way from one tier to the other, in blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/iteration_plan.h"

namespace tandem {

// Plain data: what block source_blocks[i] of the one tier holds, of every layer, goes to
// destination_blocks[i] of tier `to`. As many of one as of the other, in token order.
struct BlockMove {
  SequenceId sequence = 0;  // 0: the blocks are nobody's
  Tier to = Tier::kGpu;
  std::vector<int32_t> source_blocks;
  std::vector<int32_t> destination_blocks;

  Tier from() const { return OtherTier(to); }
};

}  // namespace tandem
