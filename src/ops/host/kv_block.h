// The order of elements inside a KV block of the host backend.
//
// A block is [kv head]{K, V}. Tokens form tiles of 32 (16 where the block size is no multiple of 32), T
// below.
//   fp32  K: [tile][d][T]            V: [token][d]
//   bf16  K: [tile][d / 2][T][2]     V: [token / 2][d][2]
// So scores of T tokens come without horizontal sums, and bf16 pairs feed two-way dot products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kv_layout.h"

namespace tandem {

constexpr int64_t KvTileTokens(int64_t block_size) {
  return block_size % 32 == 0 ? 32 : 16;
}

// Elements of K (or of V) of one head of one block.
constexpr int64_t KvHeadElements(const KvShape& shape) {
  return shape.block_size * shape.head_dim;
}

// Elements from the view's start to K of a head; V follows after KvHeadElements.
constexpr int64_t KvHeadOffset(const KvShape& shape, int64_t block, int64_t kv_head) {
  return (block * shape.num_kv_heads + kv_head) * 2 * KvHeadElements(shape);
}

// Aborts unless the shape is one that the kernels take: fp32 or bf16, block size and head size multiples
// of 16.
void CheckKvShape(const KvLayerView& kv);

}  // namespace tandem
