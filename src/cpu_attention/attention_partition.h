// One partition of keys for the rows of a span of kv heads: block by block, head by head, tile by tile.
// Compiled once an instruction set (see simd.h).
#pragma once

#include <type_traits>

#include "cpu_attention/attention_int8.h"
#include "cpu_attention/attention_kernels.h"
#include "cpu_attention/attention_tile.h"
#if defined(__AMX_BF16__)
#include "cpu_attention/attention_amx.h"
#include "cpu_attention/attention_int8_amx.h"
#endif

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

// Of floats: as the score kernels read them, and for AMX in rows [query][head_dim].
template <typename T>
struct HeadQueries {
  QuerySteps<T> steps;
  const Operand<T>* rows = nullptr;

  TANDEM_SIMD_INLINE HeadQueries Head(int64_t head, int64_t num_queries, int64_t head_dim) const {
    const int64_t skipped = head * num_queries * head_dim;
    return {{steps.data + skipped, steps.stride}, rows + skipped};
  }
};

// Bytes of a tile of K or of V.
template <typename T>
TANDEM_SIMD_INLINE int64_t TileBytes(int64_t num_tokens, int64_t head_dim) {
  const int64_t scale_bytes = std::is_same_v<T, Int8Kv> ? 2 : 0;
  return num_tokens * (head_dim * static_cast<int64_t>(sizeof(T)) + scale_bytes);
}

#if defined(__AMX_BF16__)
// By the shape of the model only, so that a row's result does not depend on its batch.
TANDEM_SIMD_INLINE bool UsesTiles(const AttentionRows& rows) {
  if (rows.block_size % kMaxTileTokens != 0 || rows.group_size < kMinTileQueries) return false;
  if (rows.kv_dtype == DType::kI8) {
    return rows.head_dim % kInt8TileDepth == 0 && rows.head_dim <= kMaxInt8TileHeadDim;
  }
  return rows.kv_dtype == DType::kBF16 && rows.head_dim % kTileDepth == 0;
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
template <FetchLevel kLevel, typename T>
void Tile(const AttentionRows& rows, const Workspace& work, const HeadQueries<T>& q, int64_t first,
          int64_t count, const TileOf& tile, TileRange range) {
  const int64_t head_dim = rows.head_dim;
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, uint16_t>) {
    if (UsesTiles(rows) && range.begin == 0 && range.end == tile.num_tokens) {
      TileOnAmx<kLevel>(rows, work, q.rows, first, count, tile);
      return;
    }
  }
#endif
  float* scores = work.scores + first * kMaxTileTokens;
  const QuerySteps<T> queries = {q.steps.data + first * kStepDepth<T>, q.steps.stride};
  auto fetcher = FetcherOf<kLevel>(rows, tile, TileBytes<T>(tile.num_tokens, head_dim));
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

template <FetchLevel kLevel>
void Tile(const AttentionRows& rows, const Workspace& work, const HeadQueries<Int8Kv>& q, int64_t first,
          int64_t count, const TileOf& tile, TileRange range) {
  Int8Tile(work.From(first, rows.head_dim), q.From(first, rows.head_dim), count, rows.head_dim,
           rows.scale * kLog2E, tile, range,
           FetcherOf<kLevel>(rows, tile, TileBytes<Int8Kv>(tile.num_tokens, rows.head_dim)));
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
      Tile<kLevel>(rows, work, q, row * rows.group_size, num_rows * rows.group_size, tile, range);
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

#if defined(__AMX_BF16__)
TANDEM_SIMD_INLINE bool SeesWholeBlock(const AttentionRows& rows, const BlockVisit& visit) {
  if (visit.end % kMaxTileTokens != 0) return false;
  const TileRange range = VisibleRange(rows, 0, visit.begin, kMaxTileTokens);
  return range.begin == 0 && range.end == kMaxTileTokens;
}

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

  bool Takes(const BlockVisit& visit) const { return used_ && SeesWholeBlock(rows_, visit); }
  // The row sees all of the tile. Two calls in a row may concern different heads.
  TANDEM_SIMD_INLINE void Add(const Workspace& work, const HeadQueries<uint16_t>& q, const TileOf& tile) {
    fetcher_ = FetcherOf<kLevel>(rows_, tile, TileBytes<uint16_t>(kMaxTileTokens, rows_.head_dim));
    TileScores(q.rows, rows_.head_dim, reinterpret_cast<const uint16_t*>(tile.keys), scores_[turn_],
               &fetcher_);
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

// Int8 on AMX: strips, whose borders lie at multiples of kStripTokens in absolute positions, so that what
// tiles a row takes together depends on its position only. Tiles that it sees in part go alone.
template <FetchLevel kLevel>
class StripWalk {
 public:
  explicit StripWalk(const AttentionRows& rows)
      : rows_(rows),
        tile_bytes_(TileBytes<Int8Kv>(kMaxTileTokens, rows.head_dim)),
        half_bytes_(rows.block_size / kMaxTileTokens * tile_bytes_) {}

  // Goes to keys [begin, end), of one strip.
  void GoTo(int64_t begin, int64_t end) {
    first_ = begin / kMaxTileTokens;
    last_ = DivideUp(end, kMaxTileTokens);
    for (int64_t t = first_; t < last_; ++t) places_[t % kStripTiles] = PlaceOf(t);
    num_runs_ = 0;
    for (int64_t row = 0; row < rows_.num_rows; ++row) {
      const TileRange whole = WholeTiles(row);
      RowRun* run = num_runs_ > 0 ? runs_ + num_runs_ - 1 : nullptr;
      if (run != nullptr && run->whole.begin == whole.begin && run->whole.end == whole.end) {
        ++run->num_rows;
      } else {
        runs_[num_runs_++] = {row, 1, whole};
      }
    }
  }
  // These keys of a head for all rows.
  void Visit(const Workspace& work, const HeadQueries<Int8Kv>& q, int64_t head) {
    TileOf tiles[kStripTiles];
    for (int64_t t = first_; t < last_; ++t) {
      const Place& place = places_[t % kStripTiles];
      const std::byte* piece = place.block + head * 2 * half_bytes_;
      TileOf* tile = tiles + t % kStripTiles;
      tile->keys = piece + place.offset;
      tile->values = tile->keys + half_bytes_;
      tile->num_tokens = kMaxTileTokens;
      SetFetches(rows_.fetch, half_bytes_, tile_bytes_, piece,
                 head + 1 < rows_.num_kv_heads ? piece + 2 * half_bytes_ : place.next_block, tile);
    }
    for (const RowRun* run = runs_; run != runs_ + num_runs_; ++run) {
      VisitParts(work, q, *run, first_, run->whole.begin, tiles);
      if (run->whole.begin < run->whole.end) VisitWhole(work, q, *run, tiles);
      VisitParts(work, q, *run, run->whole.end, last_, tiles);
    }
  }

 private:
  struct Place {
    const std::byte* block = nullptr;
    const std::byte* next_block = nullptr;  // what this thread reads after its last head, or null
    int64_t offset = 0;                     // of the tile in a half of a piece
  };
  // Rows that see the same tiles as a whole; none: whole is empty and at the end.
  struct RowRun {
    int64_t first = 0;
    int64_t num_rows = 0;
    TileRange whole;
  };

  const std::byte* BlockOf(int64_t key) const {
    return rows_.kv + rows_.block_table[key / rows_.block_size] * rows_.block_stride_bytes;
  }
  // Of the t-th tile of the context.
  Place PlaceOf(int64_t t) const {
    const int64_t key = t * kMaxTileTokens;
    const int64_t next_key = key + kStripTokens;
    const std::byte* next_block = nullptr;
    if (next_key < rows_.end_key()) {
      next_block = BlockOf(next_key);
    } else if (t % kStripTiles == 0) {
      next_block = rows_.next_kv;
    }
    return {BlockOf(key), next_block, key % rows_.block_size / kMaxTileTokens * tile_bytes_};
  }
  TileRange WholeTiles(int64_t row) const {
    TileRange whole = {last_, last_};
    for (int64_t t = first_; t < last_; ++t) {
      const TileRange range = VisibleRange(rows_, row, t * kMaxTileTokens, kMaxTileTokens);
      if (range.begin != 0 || range.end != kMaxTileTokens) continue;
      if (whole.begin == last_) whole.begin = t;
      whole.end = t + 1;
    }
    return whole;
  }
  // Tiles [first, last), of which a row sees some tokens or none.
  void VisitParts(const Workspace& work, const HeadQueries<Int8Kv>& q, const RowRun& run, int64_t first,
                  int64_t last, TileOf* tiles) const {
    for (int64_t t = first; t < last; ++t) {
      TileOf* tile = tiles + t % kStripTiles;
      for (int64_t row = run.first; row < run.first + run.num_rows; ++row) {
        const TileRange range = VisibleRange(rows_, row, t * kMaxTileTokens, kMaxTileTokens);
        if (range.begin >= range.end) continue;
        Tile<kLevel>(rows_, work, q, row * rows_.group_size, rows_.group_size, *tile, range);
        tile->first_fetch = nullptr;
      }
    }
  }
  void VisitWhole(const Workspace& work, const HeadQueries<Int8Kv>& q, const RowRun& run, TileOf* tiles) {
    Strip strip;
    Fetcher<kLevel> fetchers[kStripTiles];
    for (int64_t t = run.whole.begin; t < run.whole.end; ++t) {
      TileOf* tile = tiles + t % kStripTiles;
      fetchers[strip.num_tiles] = FetcherOf<kLevel>(rows_, *tile, tile_bytes_);
      tile->first_fetch = nullptr;
      strip.tiles[strip.num_tiles++] = *tile;
    }
    const int64_t end = (run.first + run.num_rows) * rows_.group_size;
    for (int64_t i = run.first * rows_.group_size; i < end; i += kInt8TileQueries) {
      const int64_t num_queries = end - i < kInt8TileQueries ? end - i : kInt8TileQueries;
      if (num_queries != configured_) ConfigureInt8Tiles(num_queries);
      configured_ = num_queries;
      Int8Strip(work.From(i, rows_.head_dim), q.From(i, rows_.head_dim), num_queries, rows_.head_dim,
                rows_.scale * kLog2E, strip, &buffers_, StripFetcher<kLevel>(fetchers));
      for (Fetcher<kLevel>& each : fetchers) each = {};
    }
  }

  const AttentionRows& rows_;
  const int64_t tile_bytes_;
  const int64_t half_bytes_;
  // Of the strip: tiles [first_, last_) of the context.
  int64_t first_ = 0;
  int64_t last_ = 0;
  Place places_[kStripTiles];
  RowRun runs_[kRowsPerGroup];
  int64_t num_runs_ = 0;
  int64_t configured_ = 0;  // the tiles of AMX, for so many queries
  StripBuffers buffers_;
};
#endif

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

// Keys [key, end) of a partition. q: of the first head, the others follow.
template <typename T, FetchLevel kLevel>
void WalkBlocks(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<T>& q,
                const SpanStates& states, int64_t key, int64_t end) {
  const int64_t tile_tokens = TileTokens(rows);
#if defined(__AMX_BF16__)
  TilePipeline<kLevel> pipeline(rows);
#endif
  while (key < end) {
    const BlockVisit visit = VisitOf(rows, key, end);
    for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
      const Workspace work = states.At(head, scratch);
      const HeadQueries<T> head_q = q.Head(head, rows.num_queries(), rows.head_dim);
#if defined(__AMX_BF16__)
      if constexpr (std::is_same_v<T, uint16_t>) {
        if (pipeline.Takes(visit)) {
          pipeline.Add(work, head_q, TileAt<T>(rows, visit, head, key));
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
}

#if defined(__AMX_BF16__)
// WalkBlocks where int8 is attended on tiles.
template <FetchLevel kLevel>
void WalkStrips(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<Int8Kv>& q,
                const SpanStates& states, int64_t key, int64_t end) {
  StripWalk<kLevel> walk(rows);
  while (key < end) {
    const int64_t strip_end = (key / kStripTokens + 1) * kStripTokens;
    walk.GoTo(key, strip_end < end ? strip_end : end);
    for (int64_t head = 0; head < rows.num_kv_heads; ++head)
      walk.Visit(states.At(head, scratch), q.Head(head, rows.num_queries(), rows.head_dim), head);
    key = strip_end;
  }
}
#endif

// Fills the states. q: of the first head, the others follow.
template <typename T, FetchLevel kLevel>
void RunPartition(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<T>& q,
                  int64_t partition, const SpanStates& states) {
  const int64_t n = states.num_queries;
  const int64_t state_size = states.state_size();
  for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
    float* state = states.states + head * state_size;
    for (int64_t i = 0; i < n; ++i) state[i] = -__builtin_inff();
    for (int64_t i = n; i < state_size; ++i) state[i] = 0.0F;
  }
  for (int64_t i = 0; i < rows.num_kv_heads * n * kLanes; ++i) states.lanes[i] = 0.0F;
  const int64_t tile_tokens = TileTokens(rows);
  int64_t key = rows.begin_key() / tile_tokens * tile_tokens;
  if (key < partition * kPartitionTokens) key = partition * kPartitionTokens;
  int64_t end = (partition + 1) * kPartitionTokens;
  if (end > rows.end_key()) end = rows.end_key();
  bool done = false;
#if defined(__AMX_BF16__)
  if constexpr (std::is_same_v<T, Int8Kv>) {
    if (UsesTiles(rows)) {
      WalkStrips<kLevel>(rows, scratch, q, states, key, end);
      done = true;
    }
  }
#endif
  if (!done) WalkBlocks<T, kLevel>(rows, scratch, q, states, key, end);
  for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
    float* sums = states.states + head * state_size + n;
    for (int64_t i = 0; i < n; ++i) sums[i] = SumLanes(Load(states.lanes + (head * n + i) * kLanes));
  }
}

}  // namespace
}  // namespace tandem
