// Attention of a few queries over one tile of keys: scores, weights, weighted values. Compiled once an
// instruction set (see simd.h).
#pragma once

#include <type_traits>

#include "cpu_attention/attention_neon_matrix.h"
#include "cpu_attention/attention_softmax.h"
#include "cpu_attention/attention_workspace.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void ScoreStep(Accumulators<kQueries, kVectors>& acc, const uint16_t* q,
                                  const uint16_t* keys) {
  uint32_t pairs[kQueries];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) pairs[i] = PairAt(q + 2 * i);
  StepPair(acc, pairs, keys);
}
template <int kQueries, int kVectors, typename T>
TANDEM_SIMD_INLINE void ScoreStep(Accumulators<kQueries, kVectors>& acc, const float* q, const T* keys) {
  Step(acc, q, 1, keys);
}
// Two values a lane, widened as they come. x: kQueries pairs, x_stride apart.
template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void WideningStep(Accumulators<kQueries, kVectors>& acc, const float* x, int64_t x_stride,
                                     const PairV (&w)[kVectors]) {
  F32V low[kVectors];
  F32V high[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    low[v] = LowHalves(w[v]);
    high[v] = HighHalves(w[v]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const F32V first = Set(x[i * x_stride]);
    const F32V second = Set(x[i * x_stride + 1]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Fma(first, low[v], acc.value[i][v]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Fma(second, high[v], acc.value[i][v]);
  }
}
template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void ScoreStep(Accumulators<kQueries, kVectors>& acc, const float* q,
                                  const uint16_t* keys) {
  PairV pairs[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) pairs[v] = LoadPairs(keys + v * kLanes * 2);
  WideningStep(acc, q, 2, pairs);
}

// scores[kQueries][tile_tokens] = q K^T for kVectors vectors of tokens. Fetches step_lines lines a step.
template <typename T, int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void ScoreKernel(QuerySteps<T> q, int64_t head_dim, const T* keys, int64_t tile_tokens,
                                   float* scores, int64_t step_lines, Fetcher* fetcher) {
  Accumulators<kQueries, kVectors> acc;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Zero();
  }
  Fetcher local = *fetcher;
  for (int64_t d = 0; d < head_dim; d += kStepDepth<T>) {
    local.Fetch(step_lines);
    ScoreStep(acc, q.data, keys);
    q.data += q.stride;
    keys += tile_tokens * kStepDepth<T>;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(scores + i * kMaxTileTokens + v * kLanes, acc.value[i][v]);
  }
}

// More queries a pass where there are registers for them: each pass loads the tile again.
constexpr int64_t kScoreQueries = kNumVectorRegisters >= 32 ? 8 : 4;

template <typename T, int kVectors, typename Fetcher>
void ScoreVectors(QuerySteps<T> q, int64_t num_queries, int64_t head_dim, const T* keys, int64_t tile_tokens,
                  float* scores, int64_t step_lines, Fetcher* fetcher) {
  while (num_queries > 0) {
    int64_t done = num_queries < kScoreQueries ? num_queries : kScoreQueries;
    switch (done) {
      case 1:
        ScoreKernel<T, 1, kVectors>(q, head_dim, keys, tile_tokens, scores, step_lines, fetcher);
        break;
      case 2:
        ScoreKernel<T, 2, kVectors>(q, head_dim, keys, tile_tokens, scores, step_lines, fetcher);
        break;
      case 3:
        ScoreKernel<T, 3, kVectors>(q, head_dim, keys, tile_tokens, scores, step_lines, fetcher);
        break;
      case 8:
        if constexpr (kScoreQueries >= 8) {
          ScoreKernel<T, 8, kVectors>(q, head_dim, keys, tile_tokens, scores, step_lines, fetcher);
          break;
        }
        [[fallthrough]];
      default:
        ScoreKernel<T, 4, kVectors>(q, head_dim, keys, tile_tokens, scores, step_lines, fetcher);
        done = 4;
    }
    q.data += done * kStepDepth<T>;
    scores += done * kMaxTileTokens;
    num_queries -= done;
  }
}

template <typename T, typename Fetcher>
void Scores(QuerySteps<T> q, int64_t num_queries, int64_t head_dim, const T* keys, int64_t tile_tokens,
            float* scores, Fetcher* fetcher) {
#if defined(TANDEM_NEON_MATRIX)
  if constexpr (std::is_same_v<T, uint16_t>) {
    MatrixScores(q, num_queries, head_dim, keys, tile_tokens, scores, fetcher);
    return;
  }
#endif
  const int64_t num_passes = DivideUp(tile_tokens, 2 * kLanes) * DivideUp(num_queries, kScoreQueries);
  const int64_t step_lines = DivideUp(fetcher->half_lines(), num_passes * head_dim / kStepDepth<T>);
  for (int64_t token = 0; token < tile_tokens;) {
    const T* from = keys + token * kStepDepth<T>;
    if (token + 2 * kLanes <= tile_tokens) {
      ScoreVectors<T, 2>(q, num_queries, head_dim, from, tile_tokens, scores + token, step_lines, fetcher);
      token += 2 * kLanes;
    } else {
      ScoreVectors<T, 1>(q, num_queries, head_dim, from, tile_tokens, scores + token, step_lines, fetcher);
      token += kLanes;
    }
  }
}

// Elements from vector v of a step of V to vector 0. group: elements of a tile's tokens for one column group
// of V (kv_block.h).
template <typename T>
TANDEM_SIMD_INLINE int64_t VectorOffset(int64_t v, int64_t group) {
  return v * kLanes / kValueColumns * group + v * kLanes % kValueColumns * kStepDepth<T>;
}

template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void ValueStep(Accumulators<kQueries, kVectors>& acc, const float* weights,
                                  const PairV (&v)[kVectors]) {
  WideningStep(acc, weights, kMaxTileTokens, v);
}
template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void ValueStep(Accumulators<kQueries, kVectors>& acc, const uint16_t* weights,
                                  const PairV (&values)[kVectors]) {
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const PairV p = SetPair(PairAt(weights + i * kWeightStride<uint16_t>));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = DotPairs(acc.value[i][v], values[v], p);
  }
}
template <int kQueries, int kVectors>
TANDEM_SIMD_INLINE void ValueStep(Accumulators<kQueries, kVectors>& acc, const float* weights,
                                  const F32V (&values)[kVectors]) {
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const F32V p = Set(weights[i * kMaxTileTokens]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Fma(p, values[v], acc.value[i][v]);
  }
}

TANDEM_SIMD_INLINE PairV LoadValues(const uint16_t* p) {
  return LoadPairs(p);
}
template <typename T>
TANDEM_SIMD_INLINE F32V LoadValues(const T* p) {
  return LoadRow(p);
}

// acc = acc * alpha + weights V for kQueries queries and kVectors vectors of the head; tokens of range, which
// holds whole steps. Fetches step_lines lines a step.
template <typename T, int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void ValueKernel(const float* scores, TileRange range, const T* values, int64_t group,
                                   int64_t head_dim, const float* alpha, float* acc_rows, int64_t step_lines,
                                   Fetcher* fetcher) {
  Accumulators<kQueries, kVectors> acc;
  const float* from = acc_rows;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i, from += head_dim) {
    const F32V factor = Set(alpha[i]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Mul(Load(from + v * kLanes), factor);
  }
  const auto* weights = reinterpret_cast<const Operand<T>*>(scores);
  Fetcher local = *fetcher;
  for (int64_t token = range.begin; token < range.end; token += kStepDepth<T>) {
    local.Fetch(step_lines);
    decltype(LoadValues(values)) step[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      step[v] = LoadValues(values + token * kValueColumns + VectorOffset<T>(v, group));
    }
    ValueStep(acc, weights + token, step);
  }
  *fetcher = local;
  float* to = acc_rows;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i, to += head_dim) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(to + v * kLanes, acc.value[i][v]);
  }
}

template <typename T, int kQueries, typename Fetcher>
void ValueColumns(const float* scores, TileRange range, const T* values, int64_t group, int64_t head_dim,
                  const float* alpha, float* acc, int64_t step_lines, Fetcher* fetcher) {
  const int64_t num_vectors = head_dim / kLanes;
  for (int64_t v = 0; v < num_vectors;) {
    const T* from = values + VectorOffset<T>(v, group);
    float* to = acc + v * kLanes;
    const int64_t left = num_vectors - v;
    // 5 and 6 vectors are 3 and the rest: alone, one vector waits for its own sums. Not where a vector is
    // half a column group: a pass begins with a whole one.
    constexpr bool kThrees = kGroupVectors >= 4 && kLanes == kValueColumns;
    if (kGroupVectors >= 4 && (left == 4 || left > 6 || (!kThrees && left >= 4))) {
      ValueKernel<T, kQueries, kGroupVectors>(scores, range, from, group, head_dim, alpha, to, step_lines,
                                              fetcher);
      v += kGroupVectors;
    } else if (kThrees && left >= 3) {
      ValueKernel<T, kQueries, kThrees ? 3 : 2>(scores, range, from, group, head_dim, alpha, to, step_lines,
                                                fetcher);
      v += 3;
    } else if (left >= 2) {
      ValueKernel<T, kQueries, 2>(scores, range, from, group, head_dim, alpha, to, step_lines, fetcher);
      v += 2;
    } else {
      ValueKernel<T, kQueries, 1>(scores, range, from, group, head_dim, alpha, to, step_lines, fetcher);
      v += 1;
    }
  }
}

template <typename T, typename Fetcher>
void WholeValues(const float* scores, int64_t num_queries, TileRange range, const T* values, int64_t group,
                 int64_t head_dim, const float* alpha, float* acc, Fetcher* fetcher) {
  const int64_t num_passes = DivideUp(num_queries, 4) * DivideUp(head_dim, kGroupVectors * kLanes);
  const int64_t num_steps = num_passes * (range.end - range.begin) / kStepDepth<T>;
  // Seven of eight lines: softmax had its share.
  const int64_t step_lines = DivideUp(fetcher->half_lines() * 7 / 8, num_steps);
  for (int64_t i = 0; i < num_queries;) {
    const int64_t left = num_queries - i;
    const float* weights = scores + i * kMaxTileTokens;
    float* to = acc + i * head_dim;
#if defined(TANDEM_NEON_MATRIX)
    if constexpr (std::is_same_v<T, uint16_t>) {
      if (left >= 2 && range.begin % 4 == 0 && range.end % 4 == 0) {
        const int64_t done = left >= 4 ? 4 : 2;
        MatrixValues(weights, done, range, values, group, head_dim, alpha + i, to, step_lines, fetcher);
        i += done;
        continue;
      }
    }
#endif
    if (left >= 4) {
      ValueColumns<T, 4>(weights, range, values, group, head_dim, alpha + i, to, step_lines, fetcher);
      i += 4;
    } else if (left == 3) {
      ValueColumns<T, 3>(weights, range, values, group, head_dim, alpha + i, to, step_lines, fetcher);
      i += 3;
    } else if (left == 2) {
      ValueColumns<T, 2>(weights, range, values, group, head_dim, alpha + i, to, step_lines, fetcher);
      i += 2;
    } else {
      ValueColumns<T, 1>(weights, range, values, group, head_dim, alpha + i, to, step_lines, fetcher);
      i += 1;
    }
  }
}

// acc = acc * alpha + one token of a pair. V of the other may be garbage, and its weight of zero would not
// remove a NaN.
inline void HalfPair(const float* scores, int64_t num_queries, int64_t token, const uint16_t* values,
                     int64_t group, int64_t head_dim, const float* alpha, float* acc) {
  const auto* weights = reinterpret_cast<const Operand<uint16_t>*>(scores);
  const PairV mask = SetPair(token % 2 == 1 ? 0xffff0000U : 0x0000ffffU);
  const int64_t pair = token / 2 * 2;
  for (int64_t i = 0; i < num_queries; ++i) {
    const auto* p = weights + i * kWeightStride<uint16_t> + pair;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Accumulators<1, 1> sum;
      float* to = acc + i * head_dim + d;
      sum.value[0][0] = Mul(Load(to), Set(alpha[i]));
      const uint16_t* from = values + pair * kValueColumns + VectorOffset<uint16_t>(d / kLanes, group);
      const PairV masked[1] = {AndPairs(LoadPairs(from), mask)};
      ValueStep(sum, p, masked);
      Store(to, sum.value[0][0]);
    }
  }
}

// acc = acc * alpha + weights V for the tokens of range. Leaves alpha changed.
template <typename T, typename Fetcher>
void Values(const float* scores, int64_t num_queries, TileRange range, const T* values, int64_t group,
            int64_t head_dim, float* alpha, float* acc, Fetcher* fetcher) {
  if constexpr (kStepDepth<T> == 2) {
    const auto half_pair = [&](int64_t token) {
      HalfPair(scores, num_queries, token, values, group, head_dim, alpha, acc);
      for (int64_t i = 0; i < num_queries; ++i) alpha[i] = 1.0F;
    };
    if (range.begin % 2 == 1) half_pair(range.begin++);
    const bool half_at_end = range.begin < range.end && range.end % 2 == 1;
    if (half_at_end) --range.end;
    if (range.begin < range.end) {
      WholeValues<T>(scores, num_queries, range, values, group, head_dim, alpha, acc, fetcher);
      if (half_at_end) {
        for (int64_t i = 0; i < num_queries; ++i) alpha[i] = 1.0F;
      }
    }
    if (half_at_end) half_pair(range.end);
  } else {
    WholeValues<T>(scores, num_queries, range, values, group, head_dim, alpha, acc, fetcher);
  }
}

}  // namespace
}  // namespace tandem
