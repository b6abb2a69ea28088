// What a KV cache is to be: the form and the number of blocks of each tier.
#pragma once

#include <cstdint>

#include "base/kv_layout.h"
#include "kv/tier_layout.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct TierShape {
  KvShape shape;
  int64_t num_blocks = 0;
};

struct KvCacheOptions {
  int64_t num_layers = 0;
  // Their formats may differ; tokens of a block, heads and their size are the same.
  TierShape gpu;
  TierShape cpu;
  // Parts of the cpu tier, part i on NUMA node i (MachineTopology().numa_nodes, again from the first if there
  // are more parts); 0: one for each node. Never more than kv heads. The gpu tier has one part.
  int64_t cpu_parts = 0;

  TierLayout LayoutOf(Tier tier) const;
  TierLayouts Layouts() const { return {LayoutOf(Tier::kGpu), LayoutOf(Tier::kCpu)}; }
};

}  // namespace tandem
