// The order of elements inside a KV block in host memory.
//
// A block is [kv head]{K, V}. Tokens form tiles of T = 32 (16 where the block size is no multiple of 32):
//
//   fp32, fp16  K: [tile][d][T]            V: [tile][d / 16][T][16]
//   bf16        K: [tile][d / 2][T][2]     V: [tile][d / 16][T / 2][16][2]
//
// So scores of T tokens come without horizontal sums, bf16 pairs feed two-way dot products and AMX tiles, and
// whatever a kernel's width is, it reads K and each column group of V front to back.
#pragma once

#include <cstdint>

#include "base/kv_layout.h"

namespace tandem {

constexpr int64_t kValueColumns = 16;  // adjacent values of d that V keeps together

constexpr int64_t KvTileTokens(int64_t block_size) {
  return block_size % 32 == 0 ? 32 : 16;
}

// Aborts unless the shape is one that the kernels take: fp32, bf16 or fp16, block size and head size
// multiples of 16.
void CheckKvShape(const KvLayerView& kv);

}  // namespace tandem
