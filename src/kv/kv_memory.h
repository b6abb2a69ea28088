// The memory of both tiers of the KV cache, without books: which block is whose, kv/kv_books.h says.
//
// Memory of a tier: [part][layer][block][kv head of the part]{K, V} (kv/tier_layout.h); the order
// inside a head is the backend's. docs/kv_cache.md has the picture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/kv_layout.h"
#include "base/result.h"
#include "device/device.h"
#include "kv/kv_cache_options.h"
#include "kv/tier_layout.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only.
class KvMemory {
 public:
  // options: as many tokens a block in both tiers. Errors: kResourceExhausted, naming the tier that does not
  // fit, what it wants and what there is; kInvalidArgument for more blocks than a table can number. Both have
  // the tier's flag as param. device outlives the memory.
  static Result<std::unique_ptr<KvMemory>> Create(Device* device, const KvCacheOptions& options);

  const TierLayout& layout(Tier tier) const { return tiers_[static_cast<size_t>(tier)].layout; }
  KvLayerView LayerView(Tier tier, int64_t layer) const;

 private:
  struct TierMemory {
    TierLayout layout;
    Buffer memory;
  };

  KvMemory() = default;

  std::array<TierMemory, kNumTiers> tiers_;
};

}  // namespace tandem
