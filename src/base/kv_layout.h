// Shape of the paged KV cache and where the blocks of a layer lie. The order of elements inside a block
// belongs to the backend (host memory: cpu_attention/kv_block.h); everyone else moves whole pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tandem {

struct KvShape {
  DType dtype = DType::kF32;
  int64_t block_size = 32;  // tokens a block
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  // K and V of one head of one block of one layer.
  size_t HeadBytes() const { return 2 * static_cast<size_t>(block_size * head_dim) * DTypeSize(dtype); }
  // All heads of one block of one layer.
  size_t BlockBytes() const { return static_cast<size_t>(num_kv_heads) * HeadBytes(); }
};

// How the kv heads are spread over parts of the memory, one a NUMA node: part p holds heads
// [p * heads_per_part, (p + 1) * heads_per_part) of every block, the last part what is left.
struct KvParts {
  int64_t num_parts = 1;
  int64_t heads_per_part = 0;
};

// As many parts as wanted, fewer if there are fewer heads; each at least one head.
constexpr KvParts SplitHeads(int64_t num_kv_heads, int64_t wanted_parts) {
  const int64_t heads_per_part = (num_kv_heads + wanted_parts - 1) / std::max<int64_t>(1, wanted_parts);
  return {(num_kv_heads + heads_per_part - 1) / heads_per_part, heads_per_part};
}

// One layer of one tier. Within a part, block b is [kv head]{K, V}; blocks follow each other.
struct KvLayerView {
  void* data = nullptr;
  KvShape shape;
  int64_t num_blocks = 0;
  int64_t heads_per_part = 0;  // 0: all heads are in one part
  size_t part_stride_bytes = 0;

  // {K, V} of head kv_head of a block. Heads of one part follow each other.
  std::byte* Head(int64_t block, int64_t kv_head) const {
    auto* base = static_cast<std::byte*>(data);
    int64_t heads = shape.num_kv_heads;
    if (heads_per_part > 0) {
      const int64_t part = kv_head / heads_per_part;
      base += static_cast<size_t>(part) * part_stride_bytes;
      kv_head -= part * heads_per_part;
      heads = heads_per_part;
    }
    return base + static_cast<size_t>(block * heads + kv_head) * shape.HeadBytes();
  }
};

}  // namespace tandem
