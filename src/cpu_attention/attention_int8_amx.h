// Int8 attention on AMX tiles, for tiles of 32 keys. Included where AMX is compiled for.
//
// The digits of a query's numbers and of its weights are rows of the left operand: two rows a query cost what
// two queries cost, next to nothing beside the reading. K and V are the right operand as they lie
// (kv_block.h).
#pragma once

#include "cpu_attention/attention_amx.h"
#include "cpu_attention/attention_int8.h"

#if defined(__AMX_INT8__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kInt8TileQueries = kTileRows / 2;
constexpr int64_t kInt8TileDepth = 64;  // codes of a row of the left tile
constexpr int64_t kMaxInt8TileHeadDim = 256;
constexpr int64_t kValueStepRows = kMaxTileTokens / 4;

// Tiles: 0, 1 results, 2 queries, 3, 4 keys, 5 weights, 6, 7 values.
inline void ConfigureInt8Tiles(int64_t num_queries) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = tile == 5 ? kMaxTileTokens : kTileBytes;
    config.rows[tile] = static_cast<uint8_t>(tile == 3 || tile == 4   ? kTileRows
                                             : tile == 6 || tile == 7 ? kValueStepRows
                                                                      : 2 * num_queries);
  }
  _tile_loadconfig(&config);
}

// sums[query]{high [32], low [32]} of up to 8 queries.
template <typename Fetcher>
TANDEM_SIMD_INLINE void Int8TileScores(const int8_t* digits, int64_t head_dim, const std::byte* keys,
                                       int32_t* sums, Fetcher* fetcher) {
  constexpr int64_t kKeyStride = kMaxTileTokens * 4;  // bytes from a four of d to the next
  const int64_t step_lines = fetcher->half_lines() * kInt8TileDepth / head_dim / 5;
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t d = 0; d < head_dim; d += kInt8TileDepth) {
    _tile_loadd(2, digits + d, head_dim);
    _tile_loadd(3, keys, kKeyStride);
    _tile_dpbsud(0, 2, 3);
    fetcher->Fetch(step_lines);
    _tile_loadd(4, keys + kTileBytes, kKeyStride);
    _tile_dpbsud(1, 2, 4);
    fetcher->Fetch(step_lines);
    keys += kMaxTileTokens * kInt8TileDepth;
  }
  _tile_stored(0, sums, kMaxTileTokens * 4);
  _tile_stored(1, sums + 16, kMaxTileTokens * 4);
}

// From sums by digit to scores.
template <typename Fetcher>
TANDEM_SIMD_INLINE void ScoresOfTiles(const int32_t* sums, const HeadQueries<Int8Kv>& q, int64_t num_queries,
                                      const uint16_t* key_scales, float* scores, Fetcher* fetcher) {
  const int64_t lines_each = fetcher->half_lines() / 4 / num_queries;
  for (int64_t i = 0; i < num_queries; ++i) {
    fetcher->Fetch(lines_each);
    const int32_t* high = sums + i * 2 * kMaxTileTokens;
#pragma GCC unroll 2
    for (int64_t t = 0; t < kMaxTileTokens; t += kLanes) {
      const QuadSum sum = {LoadInts(high + t), LoadInts(high + kMaxTileTokens + t)};
      Store(scores + i * kMaxTileTokens + t,
            ScoreOf(SubInts(Total(sum), SetInt(q.offsets[i])), q.scales[i], key_scales + t));
    }
  }
}

// The largest lane of each of 8 vectors: of vector i in lane i, of vector 4 + i in lane 8 + i.
TANDEM_SIMD_INLINE F32V MaxLanes(const F32V (&v)[kInt8TileQueries]) {
  F32V pairs[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = Max(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  F32V fours[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(pairs[2 * i]);
    const __m512d b = _mm512_castps_pd(pairs[2 * i + 1]);
    fours[i] = Max(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const F32V halves =
      Max(_mm512_shuffle_f32x4(fours[0], fours[1], 0x88), _mm512_shuffle_f32x4(fours[0], fours[1], 0xdd));
  return Max(halves, _mm512_shuffle_f32x4(halves, halves, 0xb1));
}

// QuantizeWeights for tiles: high digits at the start of a query's row, low ones 64 bytes behind.
template <typename Fetcher>
TANDEM_SIMD_INLINE void QuantizeTileWeights(float* scores, int64_t num_queries, const float* value_scales,
                                            Fetcher* fetcher) {
  static_assert(kMaxTileTokens == 2 * kLanes);
  const F32V scales[2] = {Load(value_scales), Load(value_scales + kLanes)};
  F32V largest[kInt8TileQueries] = {Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < num_queries; ++i) {
    const float* row = scores + i * kMaxTileTokens;
    largest[i] = Max(Mul(Load(row), scales[0]), Mul(Load(row + kLanes), scales[1]));
  }
  const F32V top = MaxLanes(largest);
  alignas(64) float factors[kLanes];
  alignas(64) float weight_scales[kLanes];
  Store(factors, KeepIfNotLess(top, Set(1e-36F), Div(Set(kMaxWeightNumber), top)));
  Store(weight_scales, Div(top, Set(kMaxWeightNumber)));
  const int64_t lines_each = fetcher->half_lines() / 4 / num_queries;
  for (int64_t i = 0; i < num_queries; ++i) {
    fetcher->Fetch(lines_each);
    const int64_t lane = i < 4 ? i : i + 4;
    float* row = scores + i * kMaxTileTokens;
    auto* to = reinterpret_cast<__m128i*>(row);
    const F32V factor = Set(factors[lane]);
    const I32V first = ToInts(Mul(Mul(Load(row), scales[0]), factor));
    const I32V second = ToInts(Mul(Mul(Load(row + kLanes), scales[1]), factor));
    __m128i high;
    __m128i low;
    UnsignedDigits(first, &high, &low);
    _mm_storeu_si128(to, high);
    _mm_storeu_si128(to + 4, low);
    UnsignedDigits(second, &high, &low);
    _mm_storeu_si128(to + 1, high);
    _mm_storeu_si128(to + 5, low);
    row[kWeightScaleAt] = weight_scales[lane];
  }
}

// acc = acc * alpha + weights V of up to 8 queries.
template <typename Fetcher>
TANDEM_SIMD_INLINE void Int8TileValues(const float* scores, int64_t num_queries, const std::byte* values,
                                       int64_t head_dim, const float* alpha, float* acc, Fetcher* fetcher) {
  constexpr int64_t kGroupBytes = kMaxTileTokens * kValueColumns;
  constexpr int64_t kColumns = 2 * kValueColumns;
  ScaleRows(num_queries, head_dim, alpha, acc);
  const int64_t lines_each = DivideUp(fetcher->half_lines() * kColumns / head_dim, num_queries);
  alignas(64) int32_t sums[2][kTileRows * kColumns];
  const auto add = [&](int64_t d) __attribute__((always_inline)) {
    const int32_t* from = sums[d / kColumns % 2];
    for (int64_t i = 0; i < num_queries; ++i) {
      fetcher->Fetch(lines_each);
      const F32V scale = Set(scores[i * kMaxTileTokens + kWeightScaleAt]);
#pragma GCC unroll 2
      for (int64_t column = 0; column < kColumns; column += kLanes) {
        const QuadSum sum = {LoadInts(from + i * 2 * kColumns + column),
                             LoadInts(from + (i * 2 + 1) * kColumns + column)};
        float* to = acc + i * head_dim + d + column;
        Store(to, Fma(ToFloats(Total(sum)), scale, Load(to)));
      }
    }
  };
  _tile_loadd(5, scores, kTileBytes);
  for (int64_t d = 0; d < head_dim; d += kColumns) {
    int32_t* to = sums[d / kColumns % 2];
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(6, values, kTileBytes);
    _tile_dpbusd(0, 5, 6);
    _tile_loadd(7, values + kGroupBytes, kTileBytes);
    _tile_dpbusd(1, 5, 7);
    _tile_stored(0, to, kColumns * 4);
    _tile_stored(1, to + kValueColumns, kColumns * 4);
    values += 2 * kGroupBytes;
    // One turn behind, so that nothing waits for the tiles.
    if (d > 0) add(d - kColumns);
  }
  add(head_dim - kColumns);
}

// The steps after the scores' sums.
template <typename Fetcher>
TANDEM_SIMD_INLINE void Int8FinishTile(const Workspace& work, const HeadQueries<Int8Kv>& q,
                                       int64_t num_queries, int64_t head_dim, float scale,
                                       const int32_t* sums, const TileOf& tile, Fetcher* fetcher) {
  constexpr TileRange kAll = {0, kMaxTileTokens};
  // A tile is loaded as a whole: what it waits for, from L2, is waited for 16 times.
  for (int64_t at = 0; at < kMaxTileTokens * head_dim; at += 64) FetchLine<FetchLevel::kL1>(tile.values + at);
  ScoresOfTiles(sums, q, num_queries, ScalesOf(tile.keys, kMaxTileTokens, head_dim), work.scores, fetcher);
  Softmax<Int8Kv, kMaxTileTokens>(work.scores, num_queries, scale, kAll, work.max, work.sum_lanes, work.alpha,
                                  fetcher->half_lines() * 2 / 5, fetcher);
  fetcher->FetchRest();
  fetcher->Turn();
  alignas(64) float value_scales[kMaxTileTokens];
  LoadValueScales(ScalesOf(tile.values, kMaxTileTokens, head_dim), kMaxTileTokens, kAll, value_scales);
  QuantizeTileWeights(work.scores, num_queries, value_scales, fetcher);
  Int8TileValues(work.scores, num_queries, tile.values, head_dim, work.alpha, work.acc, fetcher);
  fetcher->FetchRest();
}

}  // namespace
}  // namespace tandem

#endif
