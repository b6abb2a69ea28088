// Scores and weighted values of int8 by NEON's products of matrices (SMMLA): the two digits of a query by 8
// values times 8 values by 2 tokens, or columns of V. Included where they are compiled for.
//
// Two rows of fours of K or V (kv_block.h), interleaved, have eight adjacent values of d (or tokens) of each
// token (or column) together. Queries and weights are two rows of digits each, so a single query fills the
// instruction too.
#pragma once

#include "cpu_attention/attention_int8_queries.h"

#if defined(TANDEM_NEON_MATRIX)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// Of 4 tokens (or columns): eight codes of the first and of the second two.
struct InterleavedEights {
  int8x16_t low;
  int8x16_t high;
};

// fours: 4 fours; next: the 4 of the row of fours behind it. mask: kInt8KeyOffset's bit of each code, or 0.
TANDEM_SIMD_INLINE InterleavedEights InterleaveFours(const void* fours, const void* next, uint32_t mask) {
  const PairV offset = vdupq_n_u32(mask);
  const PairV a = veorq_u32(LoadPairs(static_cast<const uint16_t*>(fours)), offset);
  const PairV b = veorq_u32(LoadPairs(static_cast<const uint16_t*>(next)), offset);
  return {vreinterpretq_s8_u32(vzip1q_u32(a, b)), vreinterpretq_s8_u32(vzip2q_u32(a, b))};
}
// {8 high digits, 8 low ones}
TANDEM_SIMD_INLINE int8x16_t Digits(const int8_t* high, int64_t low_after) {
  return vcombine_s8(vld1_s8(high), vld1_s8(high + low_after));
}

// Sums of a query with 4 tokens (or columns): {high digits: two sums, low digits: two sums}.
struct DigitSums {
  I32V low;   // of the first two
  I32V high;  // of the last two

  TANDEM_SIMD_INLINE void Add(int8x16_t digits, const InterleavedEights& codes) {
    low = vmmlaq_s32(low, digits, codes.low);
    high = vmmlaq_s32(high, digits, codes.high);
  }
  TANDEM_SIMD_INLINE I32V Total() const {
    const int64x2_t a = vreinterpretq_s64_s32(low);
    const int64x2_t b = vreinterpretq_s64_s32(high);
    const I32V high_digits = vreinterpretq_s32_s64(vzip1q_s64(a, b));
    return AddInts(vshlq_n_s32(high_digits, 8), vreinterpretq_s32_s64(vzip2q_s64(a, b)));
  }
};

// As the kernels of these names in attention_int8.h.
template <int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void Int8ScoreKernel(HeadQueries<Int8Kv> q, int64_t head_dim, const uint8_t* keys,
                                       int64_t tile_tokens, const uint16_t* key_scales, float* scores,
                                       int64_t step_lines, Fetcher* fetcher) {
  constexpr uint32_t kSigns = kInt8KeyOffset * 0x01010101U;
  DigitSums sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = {SetInt(0), SetInt(0)};
  }
  Fetcher local = *fetcher;
  const int8_t* digits = q.digits;
  for (int64_t d = 0; d < head_dim; d += 8) {
    local.Fetch(2 * step_lines);
    InterleavedEights codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const uint8_t* fours = keys + v * kLanes * 4;
      codes[v] = InterleaveFours(fours, fours + tile_tokens * 4, kSigns);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const int8x16_t both = Digits(digits + i * 2 * head_dim, head_dim);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v].Add(both, codes[v]);
    }
    digits += 8;
    keys += tile_tokens * 8;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(scores + i * kMaxTileTokens + v * kLanes,
            ScoreOf(sums[i][v].Total(), q.scales[i], key_scales + v * kLanes));
    }
  }
}

template <int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void Int8ValueKernel(const float* scores, int64_t tile_tokens, const int8_t* values,
                                       int64_t group_bytes, int64_t head_dim, const float* alpha, float* acc,
                                       int64_t step_lines, Fetcher* fetcher) {
  DigitSums sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = {SetInt(0), SetInt(0)};
  }
  const auto* digits = reinterpret_cast<const int8_t*>(scores);
  constexpr int64_t kRowBytes = kMaxTileTokens * 4;
  Fetcher local = *fetcher;
  for (int64_t token = 0; token < tile_tokens; token += 8) {
    local.Fetch(2 * step_lines);
    InterleavedEights codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int8_t* fours =
          values + v * kLanes / kValueColumns * group_bytes + v * kLanes % kValueColumns * 4;
      codes[v] = InterleaveFours(fours, fours + 4 * kValueColumns, 0);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const int8x16_t both = Digits(digits + i * kRowBytes, kMaxTileTokens);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v].Add(both, codes[v]);
    }
    digits += 8;
    values += 8 * kValueColumns;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const float scale = scores[i * kMaxTileTokens + kWeightScaleAt];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      AddToAcc(acc + i * head_dim + v * kLanes, alpha[i], sums[i][v].Total(), scale);
  }
}

}  // namespace
}  // namespace tandem

#endif
