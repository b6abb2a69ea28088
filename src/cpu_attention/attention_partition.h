// One partition of keys for the rows of a span of kv heads: block by block, head by head, tile by tile.
// Compiled once an instruction set (see simd.h).
#pragma once

#include <type_traits>

#include "cpu_attention/attention_fp8.h"
#include "cpu_attention/attention_kernels.h"
#include "cpu_attention/attention_tile.h"
#include "cpu_attention/attention_visit.h"
#if defined(__AMX_BF16__)
#include "cpu_attention/attention_amx.h"
#include "cpu_attention/attention_strips.h"
#endif

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// What a cache's elements are when they are attended.
template <typename T>
using Attended = std::conditional_t<std::is_same_v<T, Fp8Kv>, float, T>;

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
  const QuerySteps<T> queries = {q.steps.data + first * kQueryDepth<T>, q.steps.stride};
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

#if defined(__AMX_BF16__)
// Whether every row does.
TANDEM_SIMD_INLINE bool SeeWholeBlock(const AttentionRows& rows, const BlockVisit& visit) {
  if (visit.end % kMaxTileTokens != 0) return false;
  const TileRange first = VisibleRange(rows, 0, visit.begin, kMaxTileTokens);
  const TileRange last = VisibleRange(rows, rows.num_rows - 1, visit.begin, kMaxTileTokens);
  return first.end == kMaxTileTokens && last.begin == 0;
}

// Decode on AMX: the scores of a tile are started before the softmax of the one before, so that the two units
// work at the same time. As many queries at a time as a tile has rows.
template <FetchLevel kLevel>
class TilePipeline {
 public:
  explicit TilePipeline(const AttentionRows& rows)
      : rows_(rows), used_(UsesTiles(rows) && rows.block_size == kMaxTileTokens && IsDecode(rows)) {
    const int64_t num_turns = DivideUp(rows.num_queries(), kTileRows);
    turn_queries_ = DivideUp(rows.num_queries(), num_turns);
  }

  bool Takes(const BlockVisit& visit) const { return used_ && SeeWholeBlock(rows_, visit); }
  // All rows see all of the tile. Two calls in a row may concern different heads.
  TANDEM_SIMD_INLINE void Add(const Workspace& work, const HeadQueries<uint16_t>& q, const TileOf& tile) {
    auto fetcher = FetcherOf<kLevel>(rows_, tile, TileBytes<uint16_t>(kMaxTileTokens, rows_.head_dim));
    const int64_t num_queries = rows_.num_queries();
    for (int64_t i = 0; i < num_queries; i += turn_queries_) {
      const int64_t left = num_queries - i;
      AddQueries(work.From(i, rows_.head_dim), q.rows + i * rows_.head_dim,
                 left < turn_queries_ ? left : turn_queries_, tile, fetcher);
      fetcher = {};
    }
  }
  TANDEM_SIMD_INLINE void Flush() {
    if (values_ == nullptr) return;
    Softmax<uint16_t, kMaxTileTokens>(pending_.scores, num_pending_, rows_.scale * kLog2E,
                                      {0, kMaxTileTokens}, pending_.max, pending_.sum_lanes, pending_.alpha,
                                      fetcher_.half_lines(), &fetcher_);
    fetcher_.FetchRest();
    fetcher_.Turn();
    Configure(num_pending_);
    TileValues(pending_.scores, num_pending_, values_, rows_.head_dim, pending_.alpha, pending_.acc,
               &fetcher_);
    fetcher_.FetchRest();
    fetcher_ = {};
    values_ = nullptr;
  }

 private:
  // One row a sequence. What several rows of one sequence see is bound by arithmetic.
  static bool IsDecode(const AttentionRows& rows) { return rows.num_rows == 1 || rows.position_step == 0; }

  TANDEM_SIMD_INLINE void Configure(int64_t num_queries) {
    if (num_queries != configured_) ConfigureTiles(num_queries);
    configured_ = num_queries;
  }
  TANDEM_SIMD_INLINE void AddQueries(const Workspace& work, const uint16_t* q, int64_t num_queries,
                                     const TileOf& tile, const Fetcher<kLevel>& fetcher) {
    fetcher_ = fetcher;
    Configure(num_queries);
    TileScores(q, rows_.head_dim, reinterpret_cast<const uint16_t*>(tile.keys), scores_[turn_], &fetcher_);
    Flush();
    pending_ = work;
    pending_.scores = scores_[turn_];
    num_pending_ = num_queries;
    values_ = reinterpret_cast<const uint16_t*>(tile.values);
    turn_ = 1 - turn_;
  }

  const AttentionRows& rows_;
  const bool used_;
  int64_t turn_queries_ = 0;
  int64_t configured_ = 0;  // the tiles of AMX, for so many queries
  Fetcher<kLevel> fetcher_;
  Workspace pending_;
  int64_t num_pending_ = 0;
  const uint16_t* values_ = nullptr;  // of the pending tile; null: none is pending
  int turn_ = 0;
  alignas(64) float scores_[2][kTileRows * kMaxTileTokens];
};

#endif

// Which of the tile's rows see what of it, as TileForAllRows.
template <FetchLevel kLevel>
[[gnu::noinline]] void Fp8TileForAllRows(const AttentionRows& rows, const Workspace& work,
                                         const HeadQueries<float>& q, int64_t tile_begin, TileOf tile) {
  Fp32Tile widened;
  WidenFp8(tile, rows.head_dim, &widened);
  tile.keys = reinterpret_cast<const std::byte*>(widened.keys);
  tile.values = reinterpret_cast<const std::byte*>(widened.values);
  tile.first_fetch = nullptr;
  TileForAllRows<float, kLevel>(rows, work, q, tile_begin, tile);
}

// Keys [key, end) of a partition. q: of the first head, the others follow.
template <typename T, FetchLevel kLevel>
void WalkBlocks(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<Attended<T>>& q,
                const SpanStates& states, int64_t key, int64_t end) {
  const int64_t tile_tokens = TileTokens(rows);
#if defined(__AMX_BF16__)
  TilePipeline<kLevel> pipeline(rows);
#endif
  while (key < end) {
    const BlockVisit visit = VisitOf(rows, key, end);
    for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
      const Workspace work = states.At(head, scratch);
      const HeadQueries<Attended<T>> head_q = q.Head(head, rows.num_queries(), rows.head_dim);
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
        if constexpr (std::is_same_v<T, Fp8Kv>) {
          Fp8TileForAllRows<kLevel>(rows, work, head_q, tile, TileAt<T>(rows, visit, head, tile));
        } else {
          TileForAllRows<T, kLevel>(rows, work, head_q, tile, TileAt<T>(rows, visit, head, tile));
        }
      }
    }
    key = visit.end;
  }
#if defined(__AMX_BF16__)
  pipeline.Flush();
#endif
}

// Fills the states. q: of the first head, the others follow.
template <typename T, FetchLevel kLevel>
void RunPartition(const AttentionRows& rows, const Workspace& scratch, const HeadQueries<Attended<T>>& q,
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
