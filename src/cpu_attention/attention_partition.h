// One partition of keys for the rows of a span of kv heads: block by block, head by head, tile by tile.
// Compiled once an instruction set (see simd.h).
#pragma once

#include "cpu_attention/attention_kernels.h"
#include "cpu_attention/attention_tile.h"
#if defined(__AMX_BF16__)
#include "cpu_attention/attention_amx.h"
#endif

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

// One head's state and one tile's working memory.
struct Workspace {
  float* max = nullptr;        // [num_queries]
  float* sum_lanes = nullptr;  // [num_queries][kLanes]
  float* acc = nullptr;        // [num_queries][head_dim]
  float* alpha = nullptr;      // [num_queries], rounded up to vectors: what the tile multiplies acc with
  float* scores = nullptr;     // [num_queries][kMaxTileTokens]
};

// A head's queries: as the score kernels read them, and for AMX in rows [query][head_dim].
template <typename T>
struct HeadQueries {
  QuerySteps<T> steps;
  const Operand<T>* rows = nullptr;
};

struct TileOf {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t num_tokens = 0;
  // What is fetched meanwhile, half of the lines from each. Null: nothing.
  const std::byte* first_fetch = nullptr;
  const std::byte* second_fetch = nullptr;
};

#if defined(__AMX_BF16__)
// By the shape of the model only, so that a row's result does not depend on its batch.
TANDEM_SIMD_INLINE bool UsesTiles(const AttentionRows& rows) {
  return rows.kv_dtype == DType::kBF16 && rows.block_size % kMaxTileTokens == 0 &&
         rows.head_dim % kTileDepth == 0 && rows.group_size >= kMinTileQueries;
}

// For several rows (prefill): as many queries at a time as a tile has rows.
template <FetchLevel kLevel>
void TileOnAmx(const AttentionRows& rows, const Workspace& work, const uint16_t* q, int64_t first,
               int64_t count, const TileOf& tile) {
  const TileRange range = {0, tile.num_tokens};
  Fetcher<kLevel> fetcher;  // these are bound by arithmetic
  for (int64_t i = first; i < first + count; i += kTileRows) {
    const int64_t left = first + count - i;
    const int64_t num_queries = left < kTileRows ? left : kTileRows;
    ConfigureTiles(num_queries);
    float* scores = work.scores + i * kMaxTileTokens;
    TileScores(q + i * rows.head_dim, rows.head_dim, reinterpret_cast<const uint16_t*>(tile.keys), scores,
               &fetcher);
    Softmax<uint16_t, kMaxTileTokens>(scores, num_queries, rows.scale * kLog2E, range, work.max + i,
                                      work.sum_lanes + i * kLanes, work.alpha, 0, &fetcher);
    TileValues(scores, num_queries, reinterpret_cast<const uint16_t*>(tile.values), rows.head_dim, work.alpha,
               work.acc + i * rows.head_dim, &fetcher);
  }
}
#endif

// One tile for queries [first, first + count), all of which see `range` of it.
template <typename T, FetchLevel kLevel>
void Tile(const AttentionRows& rows, const Workspace& work, const HeadQueries<T>& q, int64_t first,
          int64_t count, const TileOf& tile, TileRange range) {
  const int64_t head_dim = rows.head_dim;
#if defined(__AMX_BF16__)
  if constexpr (kStepDepth<T> == 2) {
    if (UsesTiles(rows) && range.begin == 0 && range.end == tile.num_tokens) {
      TileOnAmx<kLevel>(rows, work, q.rows, first, count, tile);
      return;
    }
  }
#endif
  float* scores = work.scores + first * kMaxTileTokens;
  const QuerySteps<T> queries = {q.steps.data + first * kStepDepth<T>, q.steps.stride};
  auto fetcher = FetcherOf<kLevel>(rows, tile, tile.num_tokens * head_dim * static_cast<int64_t>(sizeof(T)));
  Scores<T>(queries, count, head_dim, reinterpret_cast<const T*>(tile.keys), tile.num_tokens, scores,
            &fetcher);
  fetcher.FetchRest();
  fetcher.Turn();
  const auto softmax = tile.num_tokens == kMaxTileTokens ? Softmax<T, kMaxTileTokens, Fetcher<kLevel>>
                                                         : Softmax<T, kMaxTileTokens / 2, Fetcher<kLevel>>;
  softmax(scores, count, rows.scale * kLog2E, range, work.max + first, work.sum_lanes + first * kLanes,
          work.alpha, fetcher.half_lines() / 8, &fetcher);
  Values<T>(scores, count, range, reinterpret_cast<const T*>(tile.values), tile.num_tokens * kValueColumns,
            head_dim, work.alpha, work.acc + first * head_dim, &fetcher);
  fetcher.FetchRest();
}

TANDEM_SIMD_INLINE int64_t TileTokens(const AttentionRows& rows) {
  return rows.block_size % kMaxTileTokens == 0 ? kMaxTileTokens : kMaxTileTokens / 2;
}

// What row `row` sees of the tile that starts at key `tile_begin`; empty if begin >= end.
TANDEM_SIMD_INLINE TileRange VisibleRange(const AttentionRows& rows, int64_t row, int64_t tile_begin,
                                          int64_t tile_tokens) {
  const int64_t position = rows.first_position + row;
  const int64_t first_key = rows.window > 0 ? position - rows.window + 1 : 0;
  TileRange range;
  range.begin = first_key > tile_begin ? first_key - tile_begin : 0;
  range.end = position + 1 - tile_begin < tile_tokens ? position + 1 - tile_begin : tile_tokens;
  return range;
}

// Rows that see all of the tile go together, the others alone.
template <typename T, FetchLevel kLevel>
void TileForAllRows(const AttentionRows& rows, const Workspace& work, const HeadQueries<T>& q,
                    int64_t tile_begin, TileOf tile) {
  for (int64_t row = 0; row < rows.num_rows;) {
    const TileRange range = VisibleRange(rows, row, tile_begin, tile.num_tokens);
    int64_t num_rows = 1;
    if (range.begin == 0 && range.end == tile.num_tokens) {
      while (row + num_rows < rows.num_rows) {
        const TileRange other = VisibleRange(rows, row + num_rows, tile_begin, tile.num_tokens);
        if (other.begin != 0 || other.end != tile.num_tokens) break;
        ++num_rows;
      }
    }
    if (range.begin < range.end) {
      Tile<T, kLevel>(rows, work, q, row * rows.group_size, num_rows * rows.group_size, tile, range);
      tile.first_fetch = nullptr;
    }
    row += num_rows;
  }
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
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const int64_t half_bytes = rows.block_size * rows.head_dim * kBytes;
  const std::byte* piece = visit.block + head * 2 * half_bytes;
  // At most one piece ahead: 16 KiB take longer to compute than to arrive, and two or three pieces made no
  // difference.
  const std::byte* next = head + 1 < rows.num_kv_heads ? piece + 2 * half_bytes : visit.next_block;
  TileOf tile;
  tile.keys = piece + key % rows.block_size * rows.head_dim * kBytes;
  tile.values = tile.keys + half_bytes;
  tile.num_tokens = TileTokens(rows);
  SetFetches(rows.fetch, half_bytes, tile.num_tokens * rows.head_dim * kBytes, piece, next, &tile);
  return tile;
}

#if defined(__AMX_BF16__)
// Decode on AMX: the scores of a tile are started before the softmax of the one before, so that the two units
// work at the same time. One row of at most 16 queries.
template <FetchLevel kLevel>
class TilePipeline {
 public:
  explicit TilePipeline(const AttentionRows& rows)
      : rows_(rows),
        used_(UsesTiles(rows) && rows.block_size == kMaxTileTokens && rows.num_rows == 1 &&
              rows.group_size <= kTileRows) {
    if (used_) ConfigureTiles(rows.group_size);
  }

  bool Takes(const BlockVisit& visit) const {
    if (!used_ || visit.end % kMaxTileTokens != 0) return false;
    const TileRange range = VisibleRange(rows_, 0, visit.begin, kMaxTileTokens);
    return range.begin == 0 && range.end == kMaxTileTokens;
  }
  // The row sees all of the tile. Two calls in a row may concern different heads.
  TANDEM_SIMD_INLINE void Add(const Workspace& work, const uint16_t* q, const TileOf& tile) {
    fetcher_ = FetcherOf<kLevel>(rows_, tile, 2 * kMaxTileTokens * rows_.head_dim);
    TileScores(q, rows_.head_dim, reinterpret_cast<const uint16_t*>(tile.keys), scores_[turn_], &fetcher_);
    Flush();
    pending_ = work;
    pending_.scores = scores_[turn_];
    values_ = reinterpret_cast<const uint16_t*>(tile.values);
    turn_ = 1 - turn_;
  }
  TANDEM_SIMD_INLINE void Flush() {
    if (values_ == nullptr) return;
    Softmax<uint16_t, kMaxTileTokens>(pending_.scores, rows_.group_size, rows_.scale * kLog2E,
                                      {0, kMaxTileTokens}, pending_.max, pending_.sum_lanes, pending_.alpha,
                                      fetcher_.half_lines(), &fetcher_);
    fetcher_.FetchRest();
    fetcher_.Turn();
    TileValues(pending_.scores, rows_.group_size, values_, rows_.head_dim, pending_.alpha, pending_.acc,
               &fetcher_);
    fetcher_.FetchRest();
    fetcher_ = {};
    values_ = nullptr;
  }

 private:
  const AttentionRows& rows_;
  const bool used_;
  Fetcher<kLevel> fetcher_;
  Workspace pending_;
  const uint16_t* values_ = nullptr;  // of the pending tile; null: none is pending
  int turn_ = 0;
  alignas(64) float scores_[2][kTileRows * kMaxTileTokens];
};
#endif

// states: one a head of the span. q: of the first head, the others follow. lanes:
// [head][query][kLanes].
template <typename T, FetchLevel kLevel>
void RunPartition(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<T>& q,
                  int64_t partition, float* states, float* lanes) {
  const int64_t tile_tokens = TileTokens(rows);
  const int64_t n = rows.num_queries();
  const int64_t state_size = n * (rows.head_dim + 2);
  for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
    float* state = states + head * state_size;
    for (int64_t i = 0; i < n; ++i) state[i] = -__builtin_inff();
    for (int64_t i = n; i < state_size; ++i) state[i] = 0.0F;
  }
  for (int64_t i = 0; i < rows.num_kv_heads * n * kLanes; ++i) lanes[i] = 0.0F;
  int64_t key = rows.begin_key() / tile_tokens * tile_tokens;
  if (key < partition * kPartitionTokens) key = partition * kPartitionTokens;
  int64_t end = (partition + 1) * kPartitionTokens;
  if (end > rows.end_key()) end = rows.end_key();
#if defined(__AMX_BF16__)
  TilePipeline<kLevel> pipeline(rows);
#endif
  while (key < end) {
    const BlockVisit visit = VisitOf(rows, key, end);
    for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
      Workspace work = scratch;
      work.max = states + head * state_size;
      work.acc = work.max + 2 * n;
      work.sum_lanes = lanes + head * n * kLanes;
      HeadQueries<T> head_q = q;
      head_q.steps.data += head * n * rows.head_dim;
      head_q.rows += head * n * rows.head_dim;
#if defined(__AMX_BF16__)
      if constexpr (kStepDepth<T> == 2) {
        if (pipeline.Takes(visit)) {
          pipeline.Add(work, head_q.rows, TileAt<T>(rows, visit, head, key));
          continue;
        }
        pipeline.Flush();
      }
#endif
      for (int64_t tile = key; tile < visit.end; tile += tile_tokens) {
        TileForAllRows<T, kLevel>(rows, work, head_q, tile, TileAt<T>(rows, visit, head, tile));
      }
    }
    key = visit.end;
  }
#if defined(__AMX_BF16__)
  pipeline.Flush();
#endif
  for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
    float* sums = states + head * state_size + n;
    for (int64_t i = 0; i < n; ++i) sums[i] = SumLanes(Load(lanes + (head * n + i) * kLanes));
  }
}

}  // namespace
}  // namespace tandem
