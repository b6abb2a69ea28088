// What a KV cache is to be: the form and the number of blocks of each tier.
#pragma once

#include <cstdint>
#include <vector>

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
  // Parts of the cpu tier; 0: one for each NUMA node that it is on. Never more than kv heads. The gpu tier
  // has one part.
  int64_t cpu_parts = 0;
  // The NUMA nodes that the cpu tier is on, part i on the i-th of them, again from the first if there are
  // more parts: indices in MachineTopology().numa_nodes. Empty: all.
  std::vector<int> cpu_nodes = {};

  TierLayout LayoutOf(Tier tier) const;
  TierLayouts Layouts() const { return {LayoutOf(Tier::kGpu), LayoutOf(Tier::kCpu)}; }
};

}  // namespace tandem
