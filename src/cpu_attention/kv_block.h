// The order of elements inside a KV block in host memory.
//
// A block is [kv head]{K, V}. Tokens form tiles of T = 32 (16 where the block size is no multiple of 32):
//
//   fp32, fp16  K: [tile][d][T]            V: [tile][d / 16][T][16]
//   bf16        K: [tile][d / 2][T][2]     V: [tile][d / 16][T / 2][16][2]
//   int8, fp8   K: [tile]{[d / 4][T][4], scales [T]}
//               V: [tile]{[d / 16][T / 4][16][4], scales [T]}
//
// So scores of T tokens come without horizontal sums, pairs of bf16 and fours of int8 feed dot products and
// AMX tiles, and whatever a kernel's width is, it reads K and each column group of V front to back.
//
// int8, fp8: codes and scales are those of kv_codes.h, scales bf16. Codes of int8 of K are stored with 128
// added, since the dot products multiply unsigned by signed numbers: there the queries are signed, for V the
// weights are not.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/kv_layout.h"

namespace tandem {

constexpr int64_t kValueColumns = 16;  // adjacent values of d that V keeps together

constexpr int64_t KvTileTokens(int64_t block_size) {
  return block_size % 32 == 0 ? 32 : 16;
}

// From a tile of K or V to the next.
constexpr size_t KvTileBytes(const KvShape& shape) {
  const int64_t tokens = KvTileTokens(shape.block_size);
  const size_t scales = shape.format.scales == ScaleKind::kNone ? 0 : BytesFor(DType::kBF16, tokens);
  return BytesFor(shape.format.k_type, tokens * shape.head_dim) + scales;
}

constexpr int64_t kInt8KeyOffset = 128;
// Sums of products with codes of int8 stay within 32 bits.
constexpr int64_t kMaxCodedHeadDim = 256;

// Where a code of a tile lies, in bytes from the tile's start; token: of the tile. The cuda backend has codes
// in this order too.
constexpr int64_t CodedKeyIndex(int64_t tile_tokens, int64_t token, int64_t d) {
  return d / 4 * 4 * tile_tokens + token * 4 + d % 4;
}
constexpr int64_t CodedValueIndex(int64_t tile_tokens, int64_t token, int64_t d) {
  return d / kValueColumns * kValueColumns * tile_tokens + token / 4 * 4 * kValueColumns +
         d % kValueColumns * 4 + token % 4;
}
constexpr int64_t CodedScaleIndex(int64_t tile_tokens, int64_t head_dim, int64_t token) {
  return tile_tokens * head_dim + token * static_cast<int64_t>(sizeof(bf16_t));
}

// Aborts unless the shape is one that the kernels take: fp32, bf16, fp16 or codes, block size and head size
// multiples of 16; of codes, heads up to kMaxCodedHeadDim.
void CheckKvShape(const KvLayerView& kv);

// Whether rows of this type (q, k, v and results of attention) go with a cache of this format: fp32 with
// any, others with their own and with codes.
bool RowsGoWith(DType rows, const KvFormat& format);

}  // namespace tandem
