// Tiles of fp8 keys and values become tiles of fp32, exactly, and are attended as those are: a row has the
// bits that it would have of a cache of fp32 with the same numbers. Compiled once an instruction set (see
// simd.h).
#pragma once

#include "cpu_attention/attention_softmax.h"
#include "cpu_attention/attention_visit.h"
#include "cpu_attention/attention_workspace.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// Byte i of every word of codes of E4M3 as a float. Exponent and mantissa move to their places; the product
// makes good for the other bias, of subnormal numbers too.
TANDEM_SIMD_INLINE F32V E4M3At(PairV words, unsigned i) {
  constexpr unsigned kPlace = 20;  // of the last bit of a mantissa of three
  const unsigned shift = 8 * i;
  const PairV moved = shift > kPlace ? ShiftRight(words, shift - kPlace) : ShiftLeft(words, kPlace - shift);
  const PairV sign = ShiftLeft(words, 24 - shift);
  return Mul(FromBits(OrPairs(AndPairs(moved, SetPair(0x07f00000)), AndPairs(sign, SetPair(0x80000000)))),
             Set(0x1p120F));
}

// Of one head.
struct Fp32Tile {
  alignas(64) float keys[kMaxTileTokens * kMaxCodedHeadDim];
  alignas(64) float values[kMaxTileTokens * kMaxCodedHeadDim];
};

// RotateHead of kv_codes.h for all tokens of keys, [d][T]: the same operations on each, and so the same bits.
TANDEM_SIMD_INLINE void RotateKeys(float* keys, int64_t tokens, int64_t head_dim) {
  const int64_t size = head_dim & -head_dim;
  for (int64_t distance = 1; distance < size; distance *= 2) {
    for (int64_t first = 0; first < head_dim; first += 2 * distance) {
      // Rows that are rotated together follow each other.
      float* row = keys + first * tokens;
      for (int64_t i = 0; i < distance * tokens; i += kLanes) {
        const F32V a = Load(row + i);
        const F32V b = Load(row + distance * tokens + i);
        Store(row + i, Add(a, b));
        Store(row + distance * tokens + i, Sub(a, b));
      }
    }
  }
  const F32V factor = Set(1.0F / __builtin_sqrtf(static_cast<float>(size)));
  for (int64_t i = 0; i < head_dim * tokens; i += kLanes) Store(keys + i, Mul(Load(keys + i), factor));
}

// The orders of kv_block.h: [d / 4][T][4] to [d][T], and [d / 16][T / 4][16][4] to [d / 16][T][16].
TANDEM_SIMD_INLINE void WidenFp8(const TileOf& tile, int64_t head_dim, Fp32Tile* to) {
  const int64_t tokens = tile.num_tokens;
  const int64_t scales_at = CodedScaleIndex(tokens, head_dim, 0);
  const auto* key_scales = reinterpret_cast<const uint16_t*>(tile.keys + scales_at);
  for (int64_t d = 0; d < head_dim; d += 4) {
    for (int64_t t = 0; t < tokens; t += kLanes) {
      const PairV words = LoadPairs(reinterpret_cast<const uint16_t*>(tile.keys + d * tokens + t * 4));
      const F32V scales = LoadBf16(key_scales + t);
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i)
        Store(to->keys + (d + static_cast<int64_t>(i)) * tokens + t, Mul(E4M3At(words, i), scales));
    }
  }
  RotateKeys(to->keys, tokens, head_dim);
  const auto* value_scales = reinterpret_cast<const uint16_t*>(tile.values + scales_at);
  float scales[kMaxTileTokens];
  for (int64_t t = 0; t < tokens; t += kLanes) Store(scales + t, LoadBf16(value_scales + t));
  for (int64_t group = 0; group < head_dim; group += kValueColumns) {
    for (int64_t t = 0; t < tokens; t += 4) {
      for (int64_t column = 0; column < kValueColumns; column += kLanes) {
        const int64_t at = group * tokens + t * kValueColumns;
        const PairV words = LoadPairs(reinterpret_cast<const uint16_t*>(tile.values + at + column * 4));
#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; ++i) {
          const auto token = static_cast<int64_t>(i);
          Store(to->values + at + token * kValueColumns + column,
                Mul(E4M3At(words, i), Set(scales[t + token])));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
