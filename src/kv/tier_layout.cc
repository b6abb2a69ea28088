#include "kv/tier_layout.h"

#include <algorithm>

#include "base/round_up.h"

namespace tandem {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

TierLayout TierLayout::Of(const KvShape& shape, int64_t num_layers, int64_t num_blocks,
                          int64_t wanted_parts) {
  return {.shape = shape,
          .num_layers = num_layers,
          .num_blocks = num_blocks,
          .parts = SplitHeads(shape.num_kv_heads, std::max<int64_t>(1, wanted_parts))};
}

size_t TierLayout::PartStrideBytes() const {
  const size_t bytes = static_cast<size_t>(num_layers * num_blocks) * PartBlockBytes();
  if (parts.num_parts == 1) return bytes;
  return RoundUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes);
}

std::optional<size_t> TierLayout::TotalBytes() const {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(num_blocks, static_cast<int64_t>(BytesPerBlock()), &bytes)) return std::nullopt;
  if (__builtin_add_overflow(bytes, parts.num_parts * static_cast<int64_t>(kHugePageBytes), &bytes))
    return std::nullopt;
  return static_cast<size_t>(parts.num_parts) * PartStrideBytes();
}

int64_t TierLayout::HeadsOf(int64_t part) const {
  return std::min(parts.heads_per_part, shape.num_kv_heads - part * parts.heads_per_part);
}

KvLayerView TierLayout::LayerView(std::byte* memory, int64_t layer) const {
  KvLayerView view{.data = PartLayer(memory, 0, layer), .shape = shape, .num_blocks = num_blocks};
  if (parts.num_parts > 1) {
    view.heads_per_part = parts.heads_per_part;
    view.part_stride_bytes = PartStrideBytes();
  }
  return view;
}

int64_t MaxBlocksWithin(const TierLayout& layout, int64_t size_bytes) {
  const int64_t part_block_bytes = layout.num_layers * static_cast<int64_t>(layout.PartBlockBytes());
  int64_t part_bytes = size_bytes / layout.parts.num_parts;
  if (layout.parts.num_parts > 1) {
    const auto unit =
        static_cast<int64_t>(static_cast<size_t>(part_bytes) >= kHugePageBytes ? kHugePageBytes : kPageBytes);
    part_bytes = part_bytes / unit * unit;
  }
  return part_bytes / part_block_bytes;
}

}  // namespace tandem
