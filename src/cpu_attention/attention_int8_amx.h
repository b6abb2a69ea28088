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
  const int64_t step_lines = fetcher->half_lines() * kInt8TileDepth / head_dim / 4;
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
TANDEM_SIMD_INLINE void ScoresOfTiles(const int32_t* sums, const HeadQueries<Int8Kv>& q, int64_t num_queries,
                                      const uint16_t* key_scales, float* scores) {
  for (int64_t i = 0; i < num_queries; ++i) {
    const int32_t* high = sums + i * 2 * kMaxTileTokens;
#pragma GCC unroll 2
    for (int64_t t = 0; t < kMaxTileTokens; t += kLanes) {
      const QuadSum sum = {LoadInts(high + t), LoadInts(high + kMaxTileTokens + t)};
      Store(scores + i * kMaxTileTokens + t,
            ScoreOf(SubInts(Total(sum), SetInt(q.offsets[i])), q.scales[i], key_scales + t));
    }
  }
}

// acc = acc * alpha + weights V of up to 8 queries.
template <typename Fetcher>
TANDEM_SIMD_INLINE void Int8TileValues(const float* scores, int64_t num_queries, const std::byte* values,
                                       int64_t head_dim, const float* alpha, float* acc, Fetcher* fetcher) {
  constexpr int64_t kGroupBytes = kMaxTileTokens * kValueColumns;
  constexpr int64_t kColumns = 2 * kValueColumns;
  const int64_t step_lines = fetcher->half_lines() * kColumns / head_dim;
  alignas(64) int32_t sums[2][kTileRows * kColumns];
  const auto add = [&](int64_t d) __attribute__((always_inline)) {
    const int32_t* from = sums[d / kColumns % 2];
    for (int64_t i = 0; i < num_queries; ++i) {
      const float scale = scores[i * kMaxTileTokens + kWeightScaleAt];
#pragma GCC unroll 2
      for (int64_t column = 0; column < kColumns; column += kLanes) {
        const QuadSum sum = {LoadInts(from + i * 2 * kColumns + column),
                             LoadInts(from + (i * 2 + 1) * kColumns + column)};
        AddToAcc(acc + i * head_dim + d + column, alpha[i], Total(sum), scale);
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
    fetcher->Fetch(step_lines);
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
  ScoresOfTiles(sums, q, num_queries, ScalesOf(tile.keys, kMaxTileTokens, head_dim), work.scores);
  Softmax<Int8Kv, kMaxTileTokens>(work.scores, num_queries, scale, kAll, work.max, work.sum_lanes, work.alpha,
                                  fetcher->half_lines(), fetcher);
  fetcher->FetchRest();
  fetcher->Turn();
  alignas(64) float value_scales[kMaxTileTokens];
  LoadValueScales(ScalesOf(tile.values, kMaxTileTokens, head_dim), kMaxTileTokens, kAll, value_scales);
  QuantizeWeights<true>(work.scores, num_queries, kMaxTileTokens, value_scales);
  Int8TileValues(work.scores, num_queries, tile.values, head_dim, work.alpha, work.acc, fetcher);
  fetcher->FetchRest();
}

}  // namespace
}  // namespace tandem

#endif
