// The KV cache: two tiers of paged blocks, the block table of every sequence, and swaps between the tiers.
//
// Memory of a tier: [part][layer][block][kv head of the part]{K, V} (kv/tier_layout.h); the order inside a
// head is the backend's. A sequence lives wholly in one tier, except while it is swapped. docs/kv_cache.md
// has the picture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/kv_layout.h"
#include "base/result.h"
#include "device/device.h"
#include "kv/block_pool.h"
#include "kv/capacity_view.h"
#include "kv/kv_swap.h"
#include "kv/tier_layout.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct TieredCacheOptions {
  int64_t num_layers = 0;
  KvShape shape;
  int64_t gpu_blocks = 0;
  int64_t cpu_blocks = 0;
  // Parts of the cpu tier, part i on NUMA node i (MachineTopology().numa_nodes, again from the first if there
  // are more parts); 0: one for each node. Never more than kv heads. The gpu tier has one part.
  int64_t cpu_parts = 0;

  TierLayout LayoutOf(Tier tier) const;
};

// Engine thread only.
class TieredCache : public CapacityView {
 public:
  // Errors: kResourceExhausted, naming the tier that does not fit, what it wants and what there is;
  // kInvalidArgument for more blocks than a table can number. Both have the tier's flag as param. device
  // outlives the cache.
  static Result<std::unique_ptr<TieredCache>> Create(Device* device, const TieredCacheOptions& options);

  int64_t block_size() const override { return layout(Tier::kGpu).shape.block_size; }
  int64_t total_blocks(Tier tier) const override { return tier_state(tier).pool.num_blocks(); }
  int64_t free_blocks(Tier tier) const override { return tier_state(tier).pool.num_free(); }
  // Blocks that swaps under way have yet to give back. Free, held and in-flight blocks are the total, in each
  // tier.
  int64_t in_flight_blocks(Tier tier) const { return tier_state(tier).in_flight_blocks; }
  // During a swap: of the tier that the sequence moves to.
  int64_t held_blocks(SequenceId sequence) const override;
  std::optional<Tier> tier_of(SequenceId sequence) const override;
  const TierLayout& layout(Tier tier) const { return tier_state(tier).layout; }

  // Grows the table of a sequence so that it holds num_tokens; a new sequence starts in `tier`. False, and
  // nothing changed, if the tier has too few free blocks. CHECKs that a known sequence is in `tier`.
  bool Reserve(SequenceId sequence, Tier tier, int64_t num_tokens);
  // Frees all blocks of a sequence, those of its swap too; unknown sequences are ignored.
  void Release(SequenceId sequence);

  // Empty for unknown sequences. Valid until the next change of this sequence.
  const std::vector<int32_t>& block_table(SequenceId sequence) const;
  // block * block_size + offset of the token at position; CHECKs that it is reserved.
  int32_t SlotOf(SequenceId sequence, int64_t position) const;

  KvLayerView LayerView(Tier tier, int64_t layer) const;

  // Reserves blocks in the other tier for all that a sequence holds and switches its table to them: from now
  // on it is in tier `to` and may grow there. The old blocks stay its own until the swap ends. Null, and
  // nothing changed, if the other tier has too few free blocks. CHECKs that the sequence is in the other tier
  // and not being swapped. The pointer is valid until EndSwap, CancelSwap or Release.
  KvSwap* BeginSwap(SequenceId sequence, Tier to);
  // Null if the sequence is not being swapped.
  KvSwap* swap_of(SequenceId sequence);
  // Frees the old blocks; CHECKs that every block of every layer has been copied. Work that reuses them must
  // come after the copies: on the same stream, or after it.
  void EndSwap(KvSwap* swap);
  // Undoes a swap: frees what the sequence has in tier `to`, also what it grew by there, and its table is
  // again the one that it had. Its KV there is untouched.
  void CancelSwap(KvSwap* swap);

  // A swap of all layers at once on stream, by the ops of device's backend. The old blocks are free for reuse
  // by work enqueued on the same stream or after it. False, and nothing changed, if the other tier has too
  // few free blocks.
  bool Move(SequenceId sequence, Tier to, Ops& ops, Stream& stream);

 private:
  struct TierState {
    TierLayout layout;
    BlockPool pool{0};
    int64_t in_flight_blocks = 0;
    Buffer memory;
  };
  struct Table {
    Tier tier = Tier::kGpu;
    std::vector<int32_t> blocks;
    std::unique_ptr<KvSwap> swap;  // null: none under way
  };

  TieredCache() = default;
  const TierState& tier_state(Tier tier) const { return tiers_[static_cast<size_t>(tier)]; }
  TierState& tier_state(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }
  Table& TableOf(const KvSwap* swap);
  // Gives back the blocks that a table's swap holds beside it.
  void FreeSource(Table* table);

  std::array<TierState, kNumTiers> tiers_;
  std::unordered_map<SequenceId, Table> tables_;
};

}  // namespace tandem
