// The KV cache: two tiers of paged blocks, the block table of every sequence, and moves between the tiers.
//
// Memory of a tier: [layer][block][kv head]{K, V}; the order inside a block is the backend's
// (ops/kv_layout.h). A sequence lives wholly in one tier.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kv/block_pool.h"
#include "kv/capacity_view.h"
#include "ops/kv_layout.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct TieredCacheOptions {
  int64_t num_layers = 0;
  KvShape shape;
  int64_t gpu_blocks = 0;
  int64_t cpu_blocks = 0;
};

// Engine thread only.
class TieredCache : public CapacityView {
 public:
  // Error: kResourceExhausted, naming the tier that does not fit. device outlives the cache.
  static Result<std::unique_ptr<TieredCache>> Create(Device* device, const TieredCacheOptions& options);

  int64_t block_size() const override { return options_.shape.block_size; }
  int64_t total_blocks(Tier tier) const override { return tier_state(tier).pool.num_blocks(); }
  int64_t free_blocks(Tier tier) const override { return tier_state(tier).pool.num_free(); }
  int64_t held_blocks(SequenceId sequence) const override;
  std::optional<Tier> tier_of(SequenceId sequence) const override;

  // Grows the table of a sequence so that it holds num_tokens; a new sequence starts in `tier`. False, and
  // nothing changed, if the tier has too few free blocks. CHECKs that a known sequence is in `tier`.
  bool Reserve(SequenceId sequence, Tier tier, int64_t num_tokens);
  // Frees all blocks of a sequence; unknown sequences are ignored.
  void Release(SequenceId sequence);

  // Empty for unknown sequences. Valid until the next change of this sequence.
  const std::vector<int32_t>& block_table(SequenceId sequence) const;
  // block * block_size + offset of the token at position; CHECKs that it is reserved.
  int32_t SlotOf(SequenceId sequence, int64_t position) const;

  KvLayerView LayerView(Tier tier, int64_t layer) const;

  // Copies the whole KV of a sequence to the other tier on stream, layer by layer, and switches its table.
  // The old blocks are free for reuse by work enqueued on the same stream or after it. False, and nothing
  // changed, if the other tier has too few free blocks.
  bool Move(SequenceId sequence, Tier to, Stream& stream);

 private:
  struct TierState {
    BlockPool pool{0};
    Buffer memory;
  };
  struct Table {
    Tier tier = Tier::kGpu;
    std::vector<int32_t> blocks;
  };

  explicit TieredCache(const TieredCacheOptions& options) : options_(options) {}
  const TierState& tier_state(Tier tier) const { return tiers_[static_cast<size_t>(tier)]; }
  TierState& tier_state(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }

  TieredCacheOptions options_;
  std::array<TierState, kNumTiers> tiers_;
  std::unordered_map<SequenceId, Table> tables_;
};

}  // namespace tandem
