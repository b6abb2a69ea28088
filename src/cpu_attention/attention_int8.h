// Attention of a few queries over one tile of int8 keys and values. Compiled once an instruction set (see
// simd.h).
//
// Both products are exact in integers: codes of 8 bits by numbers of 15 or 16 bits, which cost little beside
// the reading. A query's numbers have one scale; the weights of a query for one tile, times the scales of V,
// have one too: weights far below the largest of the row, but many, keep their share.
#pragma once

#include "cpu_attention/attention_int8_neon.h"
#include "cpu_attention/attention_int8_queries.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

#if !defined(TANDEM_NEON_MATRIX)

// scores[kQueries][kMaxTileTokens] of kVectors vectors of tokens. Fetches step_lines lines a step.
template <int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void Int8ScoreKernel(HeadQueries<Int8Kv> q, int64_t head_dim, const uint8_t* keys,
                                       int64_t tile_tokens, const uint16_t* key_scales, float* scores,
                                       int64_t step_lines, Fetcher* fetcher) {
  QuadSum sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = ZeroQuadSum();
  }
  Fetcher local = *fetcher;
  for (int64_t d = 0; d < head_dim; d += 4) {
    local.Fetch(step_lines);
    CodeFours codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) codes[v] = LoadUnsigned(keys + v * kLanes * 4);
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) AddKeys(sums[i][v], codes[v], q.quads + i * kQuadBytes);
    }
    q.quads += q.stride * kQuadBytes;
    keys += tile_tokens * 4;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const I32V sum = SubInts(Total(sums[i][v]), SetInt(q.offsets[i]));
      Store(scores + i * kMaxTileTokens + v * kLanes, ScoreOf(sum, q.scales[i], key_scales + v * kLanes));
    }
  }
}

#endif

constexpr int kInt8Vectors = kNumVectorRegisters >= 32 ? 2 : 1;

template <int kVectors, typename Fetcher>
void Int8ScoreVectors(HeadQueries<Int8Kv> q, int64_t num_queries, int64_t head_dim, const uint8_t* keys,
                      int64_t tile_tokens, const uint16_t* key_scales, float* scores, int64_t step_lines,
                      Fetcher* fetcher) {
  while (num_queries > 0) {
    const int64_t done = num_queries < 4 ? num_queries : 4;
    const auto kernel = done == 1   ? Int8ScoreKernel<1, kVectors, Fetcher>
                        : done == 2 ? Int8ScoreKernel<2, kVectors, Fetcher>
                        : done == 3 ? Int8ScoreKernel<3, kVectors, Fetcher>
                                    : Int8ScoreKernel<4, kVectors, Fetcher>;
    kernel(q, head_dim, keys, tile_tokens, key_scales, scores, step_lines, fetcher);
    q = q.From(done, head_dim);
    scores += done * kMaxTileTokens;
    num_queries -= done;
  }
}

template <typename Fetcher>
void Int8Scores(const HeadQueries<Int8Kv>& q, int64_t num_queries, int64_t head_dim, const uint8_t* keys,
                int64_t tile_tokens, const uint16_t* key_scales, float* scores, Fetcher* fetcher) {
  const int64_t num_passes = DivideUp(tile_tokens, kInt8Vectors * kLanes) * DivideUp(num_queries, 4);
  const int64_t step_lines = DivideUp(fetcher->half_lines(), num_passes * head_dim / 4);
  for (int64_t token = 0; token < tile_tokens;) {
    const bool whole = token + kInt8Vectors * kLanes <= tile_tokens;
    const auto pass = whole ? Int8ScoreVectors<kInt8Vectors, Fetcher> : Int8ScoreVectors<1, Fetcher>;
    pass(q, num_queries, head_dim, keys + token * 4, tile_tokens, key_scales + token, scores + token,
         step_lines, fetcher);
    token += (whole ? kInt8Vectors : 1) * kLanes;
  }
}

// From weights in fp32 to numbers, in place. value_scales: 0 outside of what the queries see, whose
// values are garbage.
TANDEM_SIMD_INLINE void QuantizeWeights(float* scores, int64_t num_queries, int64_t tile_tokens,
                                        const float* value_scales) {
  for (int64_t i = 0; i < num_queries; ++i) {
    float* row = scores + i * kMaxTileTokens;
    F32V largest = Zero();
    F32V weights[kMaxTileTokens / kLanes];
    for (int64_t t = 0; t < tile_tokens; t += kLanes) {
      weights[t / kLanes] = Mul(Load(row + t), Load(value_scales + t));
      largest = Max(largest, weights[t / kLanes]);
    }
    const float top = MaxLane(largest);
    const F32V factor = Set(top > 0.0F ? kMaxWeightNumber / top : 0.0F);
    auto* to = reinterpret_cast<std::byte*>(row);
    for (int64_t t = 0; t < tile_tokens; t += kLanes)
      StoreWeightNumbers(to, t, ToInts(Mul(weights[t / kLanes], factor)));
    row[kWeightScaleAt] = top / kMaxWeightNumber;
  }
}

// Of the tokens of range; 0 elsewhere.
TANDEM_SIMD_INLINE void LoadValueScales(const uint16_t* from, int64_t tile_tokens, TileRange range,
                                        float* scales) {
  for (int64_t t = 0; t < tile_tokens; t += kLanes) Store(scales + t, LoadBf16(from + t));
  for (int64_t t = 0; t < range.begin; ++t) scales[t] = 0.0F;
  for (int64_t t = range.end; t < tile_tokens; ++t) scales[t] = 0.0F;
}

#if !defined(TANDEM_NEON_MATRIX)

// acc = acc * alpha + weights V for kVectors vectors of the head. values: at the first of them; group_bytes:
// of a column group of V.
template <int kQueries, int kVectors, typename Fetcher>
[[gnu::noinline]] void Int8ValueKernel(const float* scores, int64_t tile_tokens, const int8_t* values,
                                       int64_t group_bytes, int64_t head_dim, const float* alpha, float* acc,
                                       int64_t step_lines, Fetcher* fetcher) {
  QuadSum sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = ZeroQuadSum();
  }
  const auto* quads = reinterpret_cast<const std::byte*>(scores);
  constexpr int64_t kRowBytes = kMaxTileTokens * 4;
  Fetcher local = *fetcher;
  for (int64_t token = 0; token < tile_tokens; token += 4) {
    local.Fetch(step_lines);
    CodeFours codes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      codes[v] =
          LoadSigned(values + v * kLanes / kValueColumns * group_bytes + v * kLanes % kValueColumns * 4);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) AddValues(sums[i][v], codes[v], quads + i * kRowBytes);
    }
    quads += kQuadBytes;
    values += 4 * kValueColumns;
  }
  *fetcher = local;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const float scale = scores[i * kMaxTileTokens + kWeightScaleAt];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      AddToAcc(acc + i * head_dim + v * kLanes, alpha[i], Total(sums[i][v]), scale);
  }
}

#endif

template <int kQueries, typename Fetcher>
void Int8ValueColumns(const float* scores, int64_t tile_tokens, const int8_t* values, int64_t head_dim,
                      const float* alpha, float* acc, int64_t step_lines, Fetcher* fetcher) {
  const int64_t group_bytes = tile_tokens * kValueColumns;
  const int64_t num_vectors = head_dim / kLanes;
  for (int64_t v = 0; v < num_vectors;) {
    const int8_t* from = values + v * kLanes / kValueColumns * group_bytes + v * kLanes % kValueColumns * 4;
    const bool whole = v + kInt8Vectors <= num_vectors;
    const auto kernel =
        whole ? Int8ValueKernel<kQueries, kInt8Vectors, Fetcher> : Int8ValueKernel<kQueries, 1, Fetcher>;
    kernel(scores, tile_tokens, from, group_bytes, head_dim, alpha, acc + v * kLanes, step_lines, fetcher);
    v += whole ? kInt8Vectors : 1;
  }
}

template <typename Fetcher>
void Int8Values(const float* scores, int64_t num_queries, int64_t tile_tokens, const int8_t* values,
                int64_t head_dim, const float* alpha, float* acc, Fetcher* fetcher) {
  const int64_t num_passes = DivideUp(num_queries, 4) * DivideUp(head_dim, kInt8Vectors * kLanes);
  // Seven of eight lines: softmax had its share.
  const int64_t step_lines = DivideUp(fetcher->half_lines() * 7 / 8, num_passes * tile_tokens / 4);
  for (int64_t i = 0; i < num_queries; i += 4) {
    const int64_t left = num_queries - i;
    const auto columns = left >= 4   ? Int8ValueColumns<4, Fetcher>
                         : left == 3 ? Int8ValueColumns<3, Fetcher>
                         : left == 2 ? Int8ValueColumns<2, Fetcher>
                                     : Int8ValueColumns<1, Fetcher>;
    columns(scores + i * kMaxTileTokens, tile_tokens, values, head_dim, alpha + i, acc + i * head_dim,
            step_lines, fetcher);
  }
}

TANDEM_SIMD_INLINE const uint16_t* ScalesOf(const std::byte* tile, int64_t tile_tokens, int64_t head_dim) {
  return reinterpret_cast<const uint16_t*>(tile + tile_tokens * head_dim);
}

// One tile for queries that all see `range` of it. work: at the first of them.
template <typename Fetcher>
void Int8Tile(const Workspace& work, const HeadQueries<Int8Kv>& q, int64_t num_queries, int64_t head_dim,
              float scale, const TileOf& tile, TileRange range, Fetcher fetcher) {
  const int64_t tokens = tile.num_tokens;
  Int8Scores(q, num_queries, head_dim, reinterpret_cast<const uint8_t*>(tile.keys), tokens,
             ScalesOf(tile.keys, tokens, head_dim), work.scores, &fetcher);
  fetcher.FetchRest();
  fetcher.Turn();
  const auto softmax = tokens == kMaxTileTokens ? Softmax<Int8Kv, kMaxTileTokens, Fetcher>
                                                : Softmax<Int8Kv, kMaxTileTokens / 2, Fetcher>;
  softmax(work.scores, num_queries, scale, range, work.max, work.sum_lanes, work.alpha,
          fetcher.half_lines() / 8, &fetcher);
  float value_scales[kMaxTileTokens];
  LoadValueScales(ScalesOf(tile.values, tokens, head_dim), tokens, range, value_scales);
  QuantizeWeights(work.scores, num_queries, tokens, value_scales);
  Int8Values(work.scores, num_queries, tokens, reinterpret_cast<const int8_t*>(tile.values), head_dim,
             work.alpha, work.acc, &fetcher);
  fetcher.FetchRest();
}

}  // namespace
}  // namespace tandem
