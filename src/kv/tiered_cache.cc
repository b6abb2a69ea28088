#include "kv/tiered_cache.h"

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<TieredCache>> TieredCache::Create(Device* device, const TieredCacheOptions& options) {
  auto cache = std::unique_ptr<TieredCache>(new TieredCache(options));
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    const int64_t num_blocks = tier == Tier::kGpu ? options.gpu_blocks : options.cpu_blocks;
    TierState& state = cache->tier_state(tier);
    const size_t size_bytes =
        static_cast<size_t>(options.num_layers * num_blocks) * options.shape.BlockBytes();
    const MemoryKind kind = tier == Tier::kGpu ? MemoryKind::kDevice : MemoryKind::kPinned;
    TANDEM_ASSIGN_OR_RETURN(
        state.memory,
        device->Allocate(size_bytes, kind, fmt::format("the KV cache of the {} tier", TierName(tier))));
    // After the memory: a size that no machine has is refused above, before its books are made.
    state.pool = BlockPool(num_blocks);
  }
  return cache;
}

int64_t TieredCache::held_blocks(SequenceId sequence) const {
  return static_cast<int64_t>(block_table(sequence).size());
}

std::optional<Tier> TieredCache::tier_of(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return std::nullopt;
  return found->second.tier;
}

bool TieredCache::Reserve(SequenceId sequence, Tier tier, int64_t num_tokens) {
  const auto found = tables_.find(sequence);
  const int64_t held = found == tables_.end() ? 0 : static_cast<int64_t>(found->second.blocks.size());
  TANDEM_CHECK(found == tables_.end() || found->second.tier == tier, "sequence {} is not in the {} tier",
               sequence, TierName(tier));
  const int64_t missing = BlocksFor(num_tokens) - held;
  if (missing <= 0) return true;
  if (missing > free_blocks(tier)) return false;
  Table& table = tables_[sequence];
  table.tier = tier;
  return tier_state(tier).pool.Allocate(missing, &table.blocks);
}

void TieredCache::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  tier_state(found->second.tier).pool.Free(found->second.blocks);
  tables_.erase(found);
}

const std::vector<int32_t>& TieredCache::block_table(SequenceId sequence) const {
  static const std::vector<int32_t> empty;
  const auto found = tables_.find(sequence);
  return found == tables_.end() ? empty : found->second.blocks;
}

int32_t TieredCache::SlotOf(SequenceId sequence, int64_t position) const {
  const std::vector<int32_t>& table = block_table(sequence);
  const auto index = static_cast<size_t>(position / block_size());
  TANDEM_CHECK(index < table.size(), "sequence {}: position {} is not reserved", sequence, position);
  return static_cast<int32_t>(table[index] * block_size() + position % block_size());
}

KvLayerView TieredCache::LayerView(Tier tier, int64_t layer) const {
  TANDEM_CHECK(layer >= 0 && layer < options_.num_layers, "layer {} of {}", layer, options_.num_layers);
  const TierState& state = tier_state(tier);
  const int64_t num_blocks = state.pool.num_blocks();
  const size_t layer_bytes = static_cast<size_t>(num_blocks) * options_.shape.BlockBytes();
  return {state.memory.as<std::byte>() + static_cast<size_t>(layer) * layer_bytes, options_.shape,
          num_blocks};
}

bool TieredCache::Move(SequenceId sequence, Tier to, Stream& stream) {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end() && found->second.tier != to, "sequence {} cannot move to the {} tier",
               sequence, TierName(to));
  Table& table = found->second;
  std::vector<int32_t> new_blocks;
  if (!tier_state(to).pool.Allocate(static_cast<int64_t>(table.blocks.size()), &new_blocks)) return false;
  const size_t block_bytes = options_.shape.BlockBytes();
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    auto* source = static_cast<std::byte*>(LayerView(table.tier, layer).data);
    auto* destination = static_cast<std::byte*>(LayerView(to, layer).data);
    for (size_t i = 0; i < new_blocks.size(); ++i) {
      stream.Copy(destination + static_cast<size_t>(new_blocks[i]) * block_bytes,
                  source + static_cast<size_t>(table.blocks[i]) * block_bytes, block_bytes);
    }
  }
  tier_state(table.tier).pool.Free(table.blocks);
  table.tier = to;
  table.blocks = std::move(new_blocks);
  return true;
}

}  // namespace tandem
