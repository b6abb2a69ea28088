// The order of elements inside a KV block in host memory.
//
// A block is [kv head]{K, V}. Tokens form tiles of 32 (16 where the block size is no multiple of 32), T
// below.
//   fp32, fp16  K: [tile][d][T]            V: [token][d]
//   bf16        K: [tile][d / 2][T][2]     V: [token / 2][d][2]
// So scores of T tokens come without horizontal sums, and bf16 pairs feed two-way dot products and AMX tiles.
#pragma once

#include <cstdint>

#include "base/kv_layout.h"

namespace tandem {

constexpr int64_t KvTileTokens(int64_t block_size) {
  return block_size % 32 == 0 ? 32 : 16;
}

// Aborts unless the shape is one that the kernels take: fp32, bf16 or fp16, block size and head size
// multiples of 16.
void CheckKvShape(const KvLayerView& kv);

}  // namespace tandem
