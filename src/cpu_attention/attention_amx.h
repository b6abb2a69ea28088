// Scores and weighted values on AMX tiles, for bf16 and tiles of 32 keys. Included where AMX is compiled for.
//
// One tile of K is 16 pairs of d by 16 tokens, one of V 16 pairs of tokens by 16 values of d: both are the
// bytes that the block layout has anyway (kv_block.h). Queries and weights are the left operand, a row each.
// A product of 16 rows costs little more than one of one row: this pays when a kv head has several query
// heads.
#pragma once

#include "cpu_attention/attention_softmax.h"
#include "simd/amx_tiles.h"

#if defined(__AMX_BF16__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kTileBytes = 64;      // a row of any tile
constexpr int64_t kTileDepth = 32;      // bf16 values of a row
constexpr int64_t kMinTileQueries = 2;  // query heads of a kv head from which on tiles are used

// Tiles: 0, 1, 5, 6 results, 2 left operand, 3, 4 right operands; 7 is not used. Sets the rows of results and
// left operands. Forgets what the tiles hold.
inline void ConfigureTiles(int64_t num_queries) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool right = tile == 3 || tile == 4 || tile == 7;
    config.row_bytes[tile] = kTileBytes;
    config.rows[tile] = static_cast<uint8_t>(right ? kTileRows : num_queries);
  }
  LoadTileConfig(config);
}

// scores = q K^T of up to 16 queries and all 32 tokens of a tile. One sum for each half of the
// tokens, so that two products overlap.
template <typename Fetcher>
TANDEM_SIMD_INLINE void TileScores(const uint16_t* q, int64_t head_dim, const uint16_t* keys, float* scores,
                                   Fetcher* fetcher) {
  constexpr int64_t kKeyStride = kMaxTileTokens * 4;  // bytes from a pair of d to the next
  constexpr int64_t kStep = kMaxTileTokens * kTileDepth;
  FinishStoresForTiles();
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t d = 0; d < head_dim; d += kTileDepth) {
    _tile_loadd(2, q + d, head_dim * 2);
    _tile_loadd(3, keys, kKeyStride);
    _tile_dpbf16ps(0, 2, 3);
    _tile_loadd(4, keys + 32, kKeyStride);
    _tile_dpbf16ps(1, 2, 4);
    fetcher->Fetch(8);
    keys += kStep;
  }
  _tile_stored(0, scores, kMaxTileTokens * 4);
  _tile_stored(1, scores + 16, kMaxTileTokens * 4);
}

// acc = acc * alpha. Seldom anything but 1.
TANDEM_SIMD_INLINE void ScaleRows(int64_t num_queries, int64_t head_dim, const float* alpha, float* acc) {
  for (int64_t i = 0; i < num_queries; ++i) {
    if (alpha[i] == 1.0F) continue;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Store(acc + i * head_dim + d, Mul(Load(acc + i * head_dim + d), Set(alpha[i])));
    }
  }
}

// acc = acc * alpha + weights V of up to 16 queries and all 32 tokens of a tile.
template <typename Fetcher>
TANDEM_SIMD_INLINE void TileValues(const float* scores, int64_t num_queries, const uint16_t* values,
                                   int64_t head_dim, const float* alpha, float* acc, Fetcher* fetcher) {
  ScaleRows(num_queries, head_dim, alpha, acc);
  const int64_t acc_stride = head_dim * 4;  // bytes from a query to the next
  FinishStoresForTiles();
  _tile_loadd(2, scores, kMaxTileTokens * 4);
  // Two pairs of result tiles in turns, so that the products overlap.
  for (int64_t d = 0; d < head_dim; d += 32) {
    _tile_loadd(3, values, kTileBytes);
    _tile_loadd(4, values + kMaxTileTokens * 16, kTileBytes);
    if (d % 64 == 0) {
      _tile_loadd(0, acc + d, acc_stride);
      _tile_loadd(1, acc + d + 16, acc_stride);
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
      _tile_stored(0, acc + d, acc_stride);
      _tile_stored(1, acc + d + 16, acc_stride);
    } else {
      _tile_loadd(5, acc + d, acc_stride);
      _tile_loadd(6, acc + d + 16, acc_stride);
      _tile_dpbf16ps(5, 2, 3);
      _tile_dpbf16ps(6, 2, 4);
      _tile_stored(5, acc + d, acc_stride);
      _tile_stored(6, acc + d + 16, acc_stride);
    }
    fetcher->Fetch(32);
    values += 2 * kMaxTileTokens * 16;
  }
}

}  // namespace
}  // namespace tandem

#endif
