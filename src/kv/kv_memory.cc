#include "kv/kv_memory.h"

#include <optional>

#include "base/check.h"
#include "base/param_error.h"
#include "kv/kv_books.h"
#include "kv/tier_flag.h"

namespace tandem {
namespace {

Result<Buffer> AllocateTier(Device* device, Tier tier, const TierLayout& layout,
                            const std::vector<int>& cpu_nodes) {
  const std::string_view flag = TierFlag(tier);
  const int64_t max_blocks = KvBooks::MaxBlocks(layout.shape.block_size);
  const std::optional<size_t> total_bytes = layout.TotalBytes();
  if (layout.num_blocks > max_blocks || !total_bytes) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, flag,
        "the KV cache of the {} tier can have {} blocks of {} tokens, {} are wanted; make --{} smaller",
        TierName(tier), max_blocks, layout.shape.block_size, layout.num_blocks, flag);
  }
  AllocateOptions options = {.num_parts = layout.parts.num_parts, .flag = flag};
  if (tier == Tier::kCpu) options.nodes = cpu_nodes;
  return device->Allocate(*total_bytes, tier == Tier::kGpu ? MemoryKind::kDevice : MemoryKind::kPinned,
                          fmt::format("the KV cache of the {} tier", TierName(tier)), options);
}

}  // namespace

Result<std::unique_ptr<KvMemory>> KvMemory::Create(Device* device, const KvCacheOptions& options) {
  const TierLayouts layouts = options.Layouts();
  const TierLayout& gpu = layouts[static_cast<size_t>(Tier::kGpu)];
  const TierLayout& cpu = layouts[static_cast<size_t>(Tier::kCpu)];
  TANDEM_CHECK(gpu.num_layers == cpu.num_layers && gpu.shape.block_size == cpu.shape.block_size,
               "{} layers and blocks of {} tokens in the gpu tier, {} and {} in the cpu tier", gpu.num_layers,
               gpu.shape.block_size, cpu.num_layers, cpu.shape.block_size);
  auto memory = std::unique_ptr<KvMemory>(new KvMemory());
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    TierMemory& of_tier = memory->tiers_[static_cast<size_t>(tier)];
    of_tier.layout = layouts[static_cast<size_t>(tier)];
    TANDEM_CHECK(of_tier.layout.num_blocks >= 0 && of_tier.layout.num_layers > 0 &&
                     of_tier.layout.shape.BlockBytes() > 0,
                 "a {} tier of {} blocks, {} layers", TierName(tier), of_tier.layout.num_blocks,
                 of_tier.layout.num_layers);
    TANDEM_ASSIGN_OR_RETURN(of_tier.memory, AllocateTier(device, tier, of_tier.layout, options.cpu_nodes));
  }
  return memory;
}

KvLayerView KvMemory::LayerView(Tier tier, int64_t layer) const {
  const TierMemory& of_tier = tiers_[static_cast<size_t>(tier)];
  TANDEM_CHECK(layer >= 0 && layer < of_tier.layout.num_layers, "layer {} of {}", layer,
               of_tier.layout.num_layers);
  return of_tier.layout.LayerView(of_tier.memory.as<std::byte>(), layer);
}

}  // namespace tandem
