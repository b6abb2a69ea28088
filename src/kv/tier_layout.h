// Where the bytes of one tier lie: [part][layer][block][kv head of the part]{K, V}.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/kv_layout.h"
#include "plan/iteration_plan.h"

namespace tandem {

struct TierLayout {
  KvShape shape;
  int64_t num_layers = 0;
  int64_t num_blocks = 0;
  KvParts parts;

  // wanted_parts: fewer if there are fewer kv heads.
  static TierLayout Of(const KvShape& shape, int64_t num_layers, int64_t num_blocks, int64_t wanted_parts);

  // One block of one layer in one part; in the last part the end of it may be unused.
  size_t PartBlockBytes() const { return static_cast<size_t>(parts.heads_per_part) * shape.HeadBytes(); }
  // One block of all layers in all parts: what a block takes from the memory.
  size_t BytesPerBlock() const {
    return static_cast<size_t>(parts.num_parts * num_layers) * PartBlockBytes();
  }
  // From the start of a part to the start of the next: several parts start at a page's border, large ones at
  // a huge page's, so that each can lie on a NUMA node of its own.
  size_t PartStrideBytes() const;
  // Absent if the number does not fit into 63 bits. The other sizes may be trusted once this one is there.
  std::optional<size_t> TotalBytes() const;

  // kv heads of a part: heads_per_part, fewer in the last one.
  int64_t HeadsOf(int64_t part) const;

  // memory: the tier's.
  std::byte* PartLayer(std::byte* memory, int64_t part, int64_t layer) const {
    return memory + static_cast<size_t>(part) * PartStrideBytes() +
           static_cast<size_t>(layer * num_blocks) * PartBlockBytes();
  }
  KvLayerView LayerView(std::byte* memory, int64_t layer) const;
};

// By tier.
using TierLayouts = std::array<TierLayout, kNumTiers>;

// The most blocks whose TotalBytes is at most size_bytes. num_blocks of the layout does not matter.
int64_t MaxBlocksWithin(const TierLayout& layout, int64_t size_bytes);

}  // namespace tandem
