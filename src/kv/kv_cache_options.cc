#include "kv/kv_cache_options.h"

#include "base/topology.h"

namespace tandem {

TierLayout KvCacheOptions::LayoutOf(Tier tier) const {
  if (tier == Tier::kGpu) return TierLayout::Of(gpu.shape, num_layers, gpu.num_blocks, 1);
  const auto num_nodes = static_cast<int64_t>(NumaNodesAt(cpu_nodes).size());
  return TierLayout::Of(cpu.shape, num_layers, cpu.num_blocks, cpu_parts > 0 ? cpu_parts : num_nodes);
}

}  // namespace tandem
