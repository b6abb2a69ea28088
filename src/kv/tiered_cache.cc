#include "kv/tiered_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/param_error.h"
#include "base/topology.h"

namespace tandem {

TierLayout TieredCacheOptions::LayoutOf(Tier tier) const {
  if (tier == Tier::kGpu) return TierLayout::Of(shape, num_layers, gpu_blocks, 1);
  const auto num_nodes = static_cast<int64_t>(MachineTopology().numa_nodes.size());
  return TierLayout::Of(shape, num_layers, cpu_blocks, cpu_parts > 0 ? cpu_parts : num_nodes);
}

Result<std::unique_ptr<TieredCache>> TieredCache::Create(Device* device, const TieredCacheOptions& options) {
  TANDEM_CHECK(options.gpu_blocks >= 0 && options.cpu_blocks >= 0 && options.cpu_parts >= 0 &&
                   options.num_layers > 0 && options.shape.BlockBytes() > 0,
               "a cache of {} gpu blocks, {} cpu blocks, {} parts, {} layers", options.gpu_blocks,
               options.cpu_blocks, options.cpu_parts, options.num_layers);
  auto cache = std::unique_ptr<TieredCache>(new TieredCache());
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    TierState& state = cache->tier_state(tier);
    state.layout = options.LayoutOf(tier);
    const std::string_view flag = tier == Tier::kGpu ? "gpu-kv-cache" : "cpu-kv-cache";
    const MemoryKind kind = tier == Tier::kGpu ? MemoryKind::kDevice : MemoryKind::kPinned;
    // Slots, which number tokens, have 32 bits.
    const int64_t max_blocks =
        std::min(BlockPool::kMaxBlocks, std::numeric_limits<int32_t>::max() / options.shape.block_size);
    const std::optional<size_t> total_bytes = state.layout.TotalBytes();
    if (state.layout.num_blocks > max_blocks || !total_bytes) {
      return MakeParamError(
          ErrorCode::kInvalidArgument, flag,
          "the KV cache of the {} tier can have {} blocks of {} tokens, {} are wanted; make --{} smaller",
          TierName(tier), max_blocks, options.shape.block_size, state.layout.num_blocks, flag);
    }
    TANDEM_ASSIGN_OR_RETURN(
        state.memory,
        device->Allocate(*total_bytes, kind, fmt::format("the KV cache of the {} tier", TierName(tier)),
                         {.num_parts = state.layout.parts.num_parts, .flag = flag}));
    // After the memory: a size that no machine has is refused above, before its books are made.
    try {
      state.pool = BlockPool(state.layout.num_blocks);
    } catch (const std::bad_alloc&) {
      return MakeParamError(ErrorCode::kResourceExhausted, flag,
                            "not enough memory for the books of {} blocks of the {} tier; make --{} smaller",
                            state.layout.num_blocks, TierName(tier), flag);
    }
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
  if (found->second.swap) FreeSource(&found->second);
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
  const TierState& state = tier_state(tier);
  TANDEM_CHECK(layer >= 0 && layer < state.layout.num_layers, "layer {} of {}", layer,
               state.layout.num_layers);
  return state.layout.LayerView(state.memory.as<std::byte>(), layer);
}

KvSwap* TieredCache::BeginSwap(SequenceId sequence, Tier to) {
  const auto found = tables_.find(sequence);
  TANDEM_CHECK(found != tables_.end() && found->second.tier != to && !found->second.swap,
               "sequence {} cannot move to the {} tier", sequence, TierName(to));
  Table& table = found->second;
  std::vector<int32_t> new_blocks;
  if (!tier_state(to).pool.Allocate(static_cast<int64_t>(table.blocks.size()), &new_blocks)) return nullptr;
  TierState& source = tier_state(table.tier);
  const TierState& destination = tier_state(to);
  source.in_flight_blocks += static_cast<int64_t>(table.blocks.size());
  table.swap = std::make_unique<KvSwap>(
      sequence, to, KvSwap::Side{&source.layout, source.memory.as<std::byte>()}, std::move(table.blocks),
      KvSwap::Side{&destination.layout, destination.memory.as<std::byte>()}, new_blocks);
  table.tier = to;
  table.blocks = std::move(new_blocks);
  return table.swap.get();
}

KvSwap* TieredCache::swap_of(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  return found == tables_.end() ? nullptr : found->second.swap.get();
}

TieredCache::Table& TieredCache::TableOf(const KvSwap* swap) {
  const auto found = tables_.find(swap->sequence());
  TANDEM_CHECK(found != tables_.end() && found->second.swap.get() == swap, "the swap is not under way");
  return found->second;
}

void TieredCache::FreeSource(Table* table) {
  TierState& source = tier_state(table->swap->from());
  source.pool.Free(table->swap->source_blocks());
  source.in_flight_blocks -= static_cast<int64_t>(table->swap->source_blocks().size());
  table->swap.reset();
}

void TieredCache::EndSwap(KvSwap* swap) {
  TANDEM_CHECK(swap->complete(), "the swap of sequence {} ends before all of it is copied", swap->sequence());
  FreeSource(&TableOf(swap));
}

void TieredCache::CancelSwap(KvSwap* swap) {
  Table& table = TableOf(swap);
  tier_state(table.tier).pool.Free(table.blocks);
  table.tier = swap->from();
  table.blocks = swap->source_blocks();
  tier_state(table.tier).in_flight_blocks -= static_cast<int64_t>(table.blocks.size());
  table.swap.reset();
}

bool TieredCache::Move(SequenceId sequence, Tier to, Ops& ops, Stream& stream) {
  KvSwap* swap = BeginSwap(sequence, to);
  if (swap == nullptr) return false;
  for (int64_t layer = 0; layer < swap->num_layers(); ++layer) swap->CopyLayer(layer, ops, stream);
  EndSwap(swap);
  return true;
}

}  // namespace tandem
