// Which keys rows see of a tile, where tiles lie, what is fetched meanwhile. Compiled once an instruction set
// (see simd.h).
#pragma once

#include <type_traits>

#include "cpu_attention/attention_int8.h"
#include "cpu_attention/attention_kernels.h"
#include "cpu_attention/attention_workspace.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

// Bytes of a tile of K or of V.
template <typename T>
TANDEM_SIMD_INLINE int64_t TileBytes(int64_t num_tokens, int64_t head_dim) {
  const int64_t scale_bytes = std::is_same_v<T, Int8Kv> || std::is_same_v<T, Fp8Kv> ? 2 : 0;
  return num_tokens * (head_dim * static_cast<int64_t>(sizeof(T)) + scale_bytes);
}

TANDEM_SIMD_INLINE int64_t TileTokens(const AttentionRows& rows) {
  return rows.block_size % kMaxTileTokens == 0 ? kMaxTileTokens : kMaxTileTokens / 2;
}

// What row `row` sees of the tile that starts at key `tile_begin`; empty if begin >= end.
TANDEM_SIMD_INLINE TileRange VisibleRange(const AttentionRows& rows, int64_t row, int64_t tile_begin,
                                          int64_t tile_tokens) {
  const int64_t position = rows.position(row);
  const int64_t first_key = rows.window > 0 ? position - rows.window + 1 : 0;
  TileRange range;
  range.begin = first_key > tile_begin ? first_key - tile_begin : 0;
  range.end = position + 1 - tile_begin < tile_tokens ? position + 1 - tile_begin : tile_tokens;
  return range;
}

// Keys [begin, end) of one block, which all heads of the span visit one after the other.
struct BlockVisit {
  const std::byte* block = nullptr;
  const std::byte* next_block = nullptr;  // what follows it, for fetching, or null
  int64_t begin = 0;
  int64_t end = 0;
};

TANDEM_SIMD_INLINE BlockVisit VisitOf(const AttentionRows& rows, int64_t key, int64_t end) {
  const int64_t index = key / rows.block_size;
  const int64_t block_end = (index + 1) * rows.block_size;
  BlockVisit visit;
  visit.block = rows.kv + rows.block_table[index] * rows.block_stride_bytes;
  visit.begin = key;
  visit.end = block_end < end ? block_end : end;
  visit.next_block =
      block_end < end ? rows.kv + rows.block_table[index + 1] * rows.block_stride_bytes : rows.next_kv;
  return visit;
}

// tile: the one of `piece` that is computed. next_piece: what this thread reads after it, or null.
TANDEM_SIMD_INLINE void SetFetches(const AttentionFetch& how, int64_t half_bytes, int64_t tile_bytes,
                                   const std::byte* piece, const std::byte* next_piece, TileOf* tile) {
  if (how.half_piece_ahead) {
    const std::byte* next_keys = tile->keys + tile_bytes;
    tile->first_fetch = tile->values;
    tile->second_fetch = next_keys < piece + half_bytes ? next_keys : next_piece;
    if (tile->second_fetch == nullptr) tile->second_fetch = tile->values;  // the end: once more
  } else if (next_piece != nullptr) {
    // The first tiles of the next piece while the first of this are computed, and so on.
    tile->first_fetch = next_piece + 2 * (tile->keys - piece);
    tile->second_fetch = tile->first_fetch + (how.every_second_line ? 64 : tile_bytes);
  }
}

// tile_bytes: of its keys, and as many of its values.
template <FetchLevel kLevel>
TANDEM_SIMD_INLINE Fetcher<kLevel> FetcherOf(const AttentionRows& rows, const TileOf& tile,
                                             int64_t tile_bytes) {
  if (tile.first_fetch == nullptr) return {};
  return {tile.first_fetch, tile.second_fetch, tile_bytes / 64, rows.fetch.every_second_line ? 128 : 64};
}

// The tile of a head that starts at key `key` of the visit.
template <typename T>
TANDEM_SIMD_INLINE TileOf TileAt(const AttentionRows& rows, const BlockVisit& visit, int64_t head,
                                 int64_t key) {
  const int64_t tile_tokens = TileTokens(rows);
  const int64_t tile_bytes = TileBytes<T>(tile_tokens, rows.head_dim);
  const int64_t half_bytes = rows.block_size / tile_tokens * tile_bytes;
  const std::byte* piece = visit.block + head * 2 * half_bytes;
  // At most one piece ahead: 16 KiB take longer to compute than to arrive, and two or three pieces made no
  // difference.
  const std::byte* next = head + 1 < rows.num_kv_heads ? piece + 2 * half_bytes : visit.next_block;
  TileOf tile;
  tile.keys = piece + key % rows.block_size / tile_tokens * tile_bytes;
  tile.values = tile.keys + half_bytes;
  tile.num_tokens = tile_tokens;
  SetFetches(rows.fetch, half_bytes, tile_bytes, piece, next, &tile);
  return tile;
}

// The states of the heads of a span: one each in `states`, [head][query][kLanes] in `lanes`.
struct SpanStates {
  float* states = nullptr;
  float* lanes = nullptr;
  int64_t num_queries = 0;  // of a head
  int64_t head_dim = 0;

  TANDEM_SIMD_INLINE int64_t state_size() const { return AttentionStateSize(num_queries, head_dim); }
  // scratch: alpha and scores.
  TANDEM_SIMD_INLINE Workspace At(int64_t head, const Workspace& scratch) const {
    Workspace work = scratch;
    work.max = states + head * state_size();
    work.acc = work.max + 2 * num_queries;
    work.sum_lanes = lanes + head * num_queries * kLanes;
    return work;
  }
};

// Int8Tile for queries [first, first + count), all of which see `range` of the tile.
template <FetchLevel kLevel>
void Tile(const AttentionRows& rows, const Workspace& work, const HeadQueries<Int8Kv>& q, int64_t first,
          int64_t count, const TileOf& tile, TileRange range) {
  Int8Tile(work.From(first, rows.head_dim), q.From(first, rows.head_dim), count, rows.head_dim,
           rows.scale * kLog2E, tile, range,
           FetcherOf<kLevel>(rows, tile, TileBytes<Int8Kv>(tile.num_tokens, rows.head_dim)));
}

}  // namespace
}  // namespace tandem
