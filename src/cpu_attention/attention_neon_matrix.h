// Scores and weighted values of bf16 by NEON's products of matrices (BFMMLA): 2 queries by 4 values times 4
// values by 2 tokens, or columns of V. Included where they are compiled for.
//
// Two rows of pairs of K or V (kv_block.h), interleaved, have four adjacent values of d (or tokens) of each
// token (or column) together, as the instruction wants them. Its sums are those of two BFDOT, one for each
// pair in order, so a query that is left over, or tokens that are no whole four, go by BFDOT and the bits do
// not depend on the rows beside.
#pragma once

#include "cpu_attention/attention_softmax.h"
#include "cpu_attention/attention_workspace.h"
#include "cpu_attention/kv_block.h"

#if defined(TANDEM_NEON_MATRIX)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// Of 4 tokens (or columns): four values of the first and of the second two.
struct InterleavedFours {
  bfloat16x8_t low;
  bfloat16x8_t high;
};

// pairs: 4 pairs; next: the 4 pairs of the row of pairs behind it.
TANDEM_SIMD_INLINE InterleavedFours InterleavePairs(const uint16_t* pairs, const uint16_t* next) {
  const PairV a = LoadPairs(pairs);
  const PairV b = LoadPairs(next);
  return {vreinterpretq_bf16_u32(vzip1q_u32(a, b)), vreinterpretq_bf16_u32(vzip2q_u32(a, b))};
}
// A product holds {query 0: two sums, query 1: two sums}. Those of one query of two products, and back.
TANDEM_SIMD_INLINE F32V FirstQuery(F32V low, F32V high) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(low), vreinterpretq_f64_f32(high)));
}
TANDEM_SIMD_INLINE F32V SecondQuery(F32V low, F32V high) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(low), vreinterpretq_f64_f32(high)));
}

// scores of 2 kPairs queries and 4 kVectors tokens. Fetches step_lines lines a step.
template <int kPairs, int kVectors, typename Fetcher>
[[gnu::noinline]] void MatrixScoreKernel(QuerySteps<uint16_t> q, int64_t head_dim, const uint16_t* keys,
                                         int64_t tile_tokens, float* scores, int64_t step_lines,
                                         Fetcher* fetcher) {
  F32V acc[kPairs][2 * kVectors];
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < 2 * kVectors; ++v) acc[p][v] = Zero();
  }
  Fetcher local = *fetcher;
  for (int64_t d = 0; d < head_dim; d += 4) {
    local.Fetch(step_lines);
    InterleavedFours fours[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      fours[v] = InterleavePairs(keys + v * 8, keys + 2 * tile_tokens + v * 8);
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const bfloat16x8_t two = vreinterpretq_bf16_u16(vld1q_u16(q.data + p * 8));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        acc[p][2 * v] = vbfmmlaq_f32(acc[p][2 * v], two, fours[v].low);
        acc[p][2 * v + 1] = vbfmmlaq_f32(acc[p][2 * v + 1], two, fours[v].high);
      }
    }
    q.data += q.stride;
    keys += 4 * tile_tokens;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    float* to = scores + 2 * p * kMaxTileTokens;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(to + v * kLanes, FirstQuery(acc[p][2 * v], acc[p][2 * v + 1]));
      Store(to + kMaxTileTokens + v * kLanes, SecondQuery(acc[p][2 * v], acc[p][2 * v + 1]));
    }
  }
}

// Of one query and 4 kVectors tokens.
template <int kVectors, typename Fetcher>
[[gnu::noinline]] void DotScoreKernel(QuerySteps<uint16_t> q, int64_t head_dim, const uint16_t* keys,
                                      int64_t tile_tokens, float* scores, int64_t step_lines,
                                      Fetcher* fetcher) {
  F32V acc[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) acc[v] = Zero();
  Fetcher local = *fetcher;
  for (int64_t d = 0; d < head_dim; d += 4) {
    local.Fetch(step_lines);
    const bfloat16x4_t four = vreinterpret_bf16_u16(vld1_u16(q.data));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const uint16_t* pairs = keys + v * 8;
      acc[v] = vbfdotq_lane_f32(acc[v], vreinterpretq_bf16_u16(vld1q_u16(pairs)), four, 0);
      acc[v] = vbfdotq_lane_f32(acc[v], vreinterpretq_bf16_u16(vld1q_u16(pairs + 2 * tile_tokens)), four, 1);
    }
    q.data += q.stride;
    keys += 4 * tile_tokens;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) Store(scores + v * kLanes, acc[v]);
}

// Accumulators of most passes: 16 of 32 registers.
template <typename Fetcher>
void MatrixScores(QuerySteps<uint16_t> q, int64_t num_queries, int64_t head_dim, const uint16_t* keys,
                  int64_t tile_tokens, float* scores, Fetcher* fetcher) {
  const int64_t num_passes = DivideUp(tile_tokens, 16) * DivideUp(num_queries, 4);
  const int64_t step_lines = DivideUp(fetcher->half_lines(), num_passes * head_dim / 4);
  while (num_queries > 0) {
    const int64_t done = num_queries >= 8 ? 8 : num_queries >= 4 ? 4 : num_queries >= 2 ? 2 : 1;
    const int64_t pass_tokens = done == 8 ? 8 : 16;
    const auto kernel = done == 8   ? MatrixScoreKernel<4, 2, Fetcher>
                        : done == 4 ? MatrixScoreKernel<2, 4, Fetcher>
                        : done == 2 ? MatrixScoreKernel<1, 4, Fetcher>
                                    : DotScoreKernel<4, Fetcher>;
    for (int64_t token = 0; token < tile_tokens; token += pass_tokens)
      kernel(q, head_dim, keys + token * 2, tile_tokens, scores + token, step_lines, fetcher);
    q.data += done * kQueryDepth<uint16_t>;
    scores += done * kMaxTileTokens;
    num_queries -= done;
  }
}

// The weights of two queries for four tokens.
TANDEM_SIMD_INLINE bfloat16x8_t WeightFours(const uint16_t* weights) {
  return vreinterpretq_bf16_u16(vcombine_u16(vld1_u16(weights), vld1_u16(weights + kWeightStride<uint16_t>)));
}

// acc = acc * alpha + weights V of 2 kPairs queries and the columns of a group of V, for whole fours of
// tokens.
template <int kPairs, typename Fetcher>
[[gnu::noinline]] void MatrixValueKernel(const uint16_t* weights, TileRange range, const uint16_t* values,
                                         int64_t head_dim, const float* alpha, float* acc_rows,
                                         int64_t step_lines, Fetcher* fetcher) {
  constexpr int kVectors = static_cast<int>(kValueColumns) / kLanes;
  F32V acc[kPairs][2 * kVectors];
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    const float* from = acc_rows + 2 * p * head_dim;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F32V first = Mul(Load(from + v * kLanes), Set(alpha[2 * p]));
      const F32V second = Mul(Load(from + head_dim + v * kLanes), Set(alpha[2 * p + 1]));
      acc[p][2 * v] = FirstQuery(first, second);
      acc[p][2 * v + 1] = SecondQuery(first, second);
    }
  }
  Fetcher local = *fetcher;
  for (int64_t token = range.begin; token < range.end; token += 4) {
    local.Fetch(2 * step_lines);
    const uint16_t* pairs = values + token * kValueColumns;
    InterleavedFours fours[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      fours[v] = InterleavePairs(pairs + v * 8, pairs + 2 * kValueColumns + v * 8);
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const bfloat16x8_t two = WeightFours(weights + 2 * p * kWeightStride<uint16_t> + token);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        acc[p][2 * v] = vbfmmlaq_f32(acc[p][2 * v], two, fours[v].low);
        acc[p][2 * v + 1] = vbfmmlaq_f32(acc[p][2 * v + 1], two, fours[v].high);
      }
    }
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    float* to = acc_rows + 2 * p * head_dim;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(to + v * kLanes, FirstQuery(acc[p][2 * v], acc[p][2 * v + 1]));
      Store(to + head_dim + v * kLanes, SecondQuery(acc[p][2 * v], acc[p][2 * v + 1]));
    }
  }
}

// Of 2 or 4 queries. group: elements of a tile's tokens for one column group of V.
template <typename Fetcher>
void MatrixValues(const float* scores, int64_t num_queries, TileRange range, const uint16_t* values,
                  int64_t group, int64_t head_dim, const float* alpha, float* acc, int64_t step_lines,
                  Fetcher* fetcher) {
  const auto* weights = reinterpret_cast<const uint16_t*>(scores);
  const auto kernel = num_queries == 4 ? MatrixValueKernel<2, Fetcher> : MatrixValueKernel<1, Fetcher>;
  for (int64_t d = 0; d < head_dim; d += kValueColumns, values += group)
    kernel(weights, range, values, head_dim, alpha, acc + d, step_lines, fetcher);
}

}  // namespace
}  // namespace tandem

#endif
