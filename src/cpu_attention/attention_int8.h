// Attention of a few queries over one tile of int8 keys and values. Compiled once an instruction set (see
// simd.h).
//
// Both products are exact in integers: codes of 8 bits by numbers of 15 or 16 bits, which cost little beside
// the reading. A query's numbers have one scale; the weights of a query for one tile, times the scales of V,
// have one too: weights far below the largest of the row, but many, keep their share.
#pragma once

#include <utility>

#include "cpu_attention/attention_int8_dot.h"
#include "cpu_attention/attention_softmax.h"
#include "cpu_attention/attention_workspace.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kMaxQueryNumber = 32512.0F;  // two signed digits: 127 * 256
constexpr float kMaxWeightNumber = 32767.0F;

// The queries of a head: q is numbers * scale.
template <>
struct HeadQueries<Int8Kv> {
  const std::byte* quads = nullptr;  // [d / 4][query], stride queries from a step to the next
  int64_t stride = 0;
  const int8_t* digits = nullptr;    // [query]{high [head_dim], low [head_dim]}, for AMX
  const float* scales = nullptr;     // [query]
  const int32_t* offsets = nullptr;  // [query]: what the offset of the keys' codes adds to a product

  TANDEM_SIMD_INLINE HeadQueries From(int64_t query, int64_t head_dim) const {
    return {quads + query * kQuadBytes, stride, digits + query * 2 * head_dim, scales + query,
            offsets + query};
  }
  TANDEM_SIMD_INLINE HeadQueries Head(int64_t head, int64_t num_queries, int64_t head_dim) const {
    HeadQueries at = From(head * num_queries, head_dim);
    at.quads = quads + head * num_queries * head_dim / 4 * kQuadBytes;
    return at;
  }
};

// Lanes whose numbers differ in bit kDistance change places.
template <int kDistance, int... kLane>
TANDEM_SIMD_INLINE F32V SwapLanes(F32V v, std::integer_sequence<int, kLane...> /*lanes*/) {
  return __builtin_shufflevector(v, v, (kLane ^ kDistance)...);
}
template <int kDistance>
TANDEM_SIMD_INLINE void RotateWithinVectors(float* x, int64_t head_dim) {
  float signs[kLanes];
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) signs[lane] = (lane & kDistance) != 0 ? -1.0F : 1.0F;
  const F32V sign = Load(signs);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F32V v = Load(x + d);
    Store(x + d, Fma(v, sign, SwapLanes<kDistance>(v, std::make_integer_sequence<int, kLanes>())));
  }
}

// RotateHead of kv_codes.h. head_dim is a multiple of 16, and so at least as many channels are rotated
// together.
inline void RotateQuery(float* x, int64_t head_dim) {
  const int64_t size = head_dim & -head_dim;
  RotateWithinVectors<1>(x, head_dim);
  RotateWithinVectors<2>(x, head_dim);
  if constexpr (kLanes >= 8) RotateWithinVectors<4>(x, head_dim);
  if constexpr (kLanes >= 16) RotateWithinVectors<8>(x, head_dim);
  for (int64_t distance = kLanes; distance < size; distance *= 2) {
    for (int64_t first = 0; first < head_dim; first += 2 * distance) {
      for (int64_t d = first; d < first + distance; d += kLanes) {
        const F32V a = Load(x + d);
        const F32V b = Load(x + d + distance);
        Store(x + d, Add(a, b));
        Store(x + d + distance, Sub(a, b));
      }
    }
  }
  const F32V factor = Set(1.0F / __builtin_sqrtf(static_cast<float>(size)));
  for (int64_t d = 0; d < head_dim; d += kLanes) Store(x + d, Mul(Load(x + d), factor));
}

// x: a query, changed. quads: of the query's first step, stride bytes to its next. digits: of the query.
inline void QuantizeQuery(float* x, int64_t head_dim, std::byte* quads, int64_t stride_bytes, int8_t* digits,
                          float* scale, int32_t* offset) {
  RotateQuery(x, head_dim);
  F32V largest = Zero();
  for (int64_t d = 0; d < head_dim; d += kLanes)
    largest = Max(largest, Max(Load(x + d), Sub(Zero(), Load(x + d))));
  const float top = MaxLane(largest);
  *scale = top / kMaxQueryNumber;
  const F32V factor = Set(top > 0.0F ? kMaxQueryNumber / top : 0.0F);
  I32V sum = SetInt(0);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const I32V numbers = ToInts(Mul(Load(x + d), factor));
    sum = AddInts(sum, numbers);
    std::byte row[kLanes / 4 * kQuadBytes];
    StoreSignedQuads(row, numbers);
#pragma GCC unroll 4
    for (int64_t step = 0; step < kLanes / 4; ++step) {
      std::memcpy(quads, row + step * kQuadBytes, kQuadBytes);
      quads += stride_bytes;
    }
#if defined(__AMX_INT8__)
    __m128i high;
    __m128i low;
    SignedDigits(numbers, &high, &low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(digits + d), high);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(digits + head_dim + d), low);
#endif
  }
  static_cast<void>(digits);
  *offset = SumIntLanes(sum) * static_cast<int32_t>(kInt8KeyOffset);
}

// Floats of scratch that PrepareInt8Queries takes.
TANDEM_SIMD_INLINE int64_t Int8QueryScratch(int64_t num_queries, int64_t head_dim) {
  return num_queries * (2 * head_dim + 2);
}

// q: [head][query][head_dim], num_queries in all, group of them a head; changed. They lie at the start of
// scratch, which is Int8QueryScratch floats.
inline HeadQueries<Int8Kv> PrepareInt8Queries(float* scratch, int64_t num_queries, int64_t group,
                                              int64_t head_dim) {
  float* scales = scratch + num_queries * head_dim;
  auto* offsets = reinterpret_cast<int32_t*>(scales + num_queries);
  auto* quads = reinterpret_cast<std::byte*>(offsets + num_queries);
  auto* digits = reinterpret_cast<int8_t*>(quads + num_queries * 2 * head_dim);
  for (int64_t i = 0; i < num_queries; ++i) {
    const int64_t head = i / group;
    std::byte* to = quads + (head * group * (head_dim / 4) + i - head * group) * kQuadBytes;
    QuantizeQuery(scratch + i * head_dim, head_dim, to, group * kQuadBytes, digits + i * 2 * head_dim,
                  scales + i, offsets + i);
  }
  return {quads, group, digits, scales, offsets};
}

// The score of kLanes tokens: sum is the product of codes and numbers.
TANDEM_SIMD_INLINE F32V ScoreOf(I32V sum, float query_scale, const uint16_t* key_scales) {
  return Mul(ToFloats(sum), Mul(Set(query_scale), LoadBf16(key_scales)));
}

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

// Where the scale of a query's weights lies in its row of the scores, behind the weights themselves.
constexpr int64_t kWeightScaleAt = 24;

// From weights in fp32 to numbers, in place: quads. value_scales: 0 outside of what the queries see, whose
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
      StoreUnsignedQuads(to + t / 4 * kQuadBytes, ToInts(Mul(weights[t / kLanes], factor)));
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

// acc = acc * alpha + sum * scale.
TANDEM_SIMD_INLINE void AddToAcc(float* acc, float alpha, I32V sum, float scale) {
  Store(acc, Fma(ToFloats(sum), Set(scale), Mul(Load(acc), Set(alpha))));
}

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
