// Int8 on AMX: how a partition is walked in strips. Included where AMX is compiled for.
#pragma once

#include "cpu_attention/attention_int8_amx.h"
#include "cpu_attention/attention_visit.h"

#if defined(__AMX_INT8__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// Strips' borders lie at multiples of kStripTokens in absolute positions, so that what
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

// Keys [key, end) of a partition. q: of the first head, the others follow.
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

}  // namespace
}  // namespace tandem

#endif
