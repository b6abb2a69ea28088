#include "ops/cuda/attention/prefill_plan.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/round_up.h"

namespace tandem {
namespace {

constexpr int64_t kTileRows[] = {16, 64, 128};
// Thread blocks of a kernel that an SM holds at once.
constexpr int64_t kBlocksPerSm = 2;

int64_t GroupSize(const PrefillShape& shape) {
  return shape.num_heads / shape.num_kv_heads;
}

bool IsLong(const PrefillShape& shape, const AttentionSequence& sequence) {
  return shape.long_rows > 0 && sequence.num_rows >= shape.long_rows && shape.sliding_window == 0;
}

int64_t NumTiles(const PrefillShape& shape, const AttentionSequence& sequence, int64_t tile_rows) {
  return DivideUp(sequence.num_rows * GroupSize(shape), tile_rows);
}

// Keys that a tile may need: all, or the window and the tile's own rows. The kernels count chunks by the same
// formula.
int64_t TileKeys(const PrefillShape& shape, const AttentionSequence& sequence, int64_t tile_rows) {
  if (shape.sliding_window == 0) return sequence.context_len;
  return std::min(sequence.context_len, shape.sliding_window - 1 + tile_rows);
}

// The tile size with the least time: a tile costs its keys times its rows, and loading the keys costs as much
// as about 48 rows.
int64_t ChooseTileRows(const PrefillShape& shape, std::span<const AttentionSequence> sequences) {
  constexpr int64_t kLoadRows = 48;
  int64_t best = 0;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (const int64_t tile_rows : kTileRows) {
    if (tile_rows < shape.small_tile_rows || tile_rows > shape.large_tile_rows) continue;
    int64_t cost = 0;
    for (const AttentionSequence& sequence : sequences) {
      if (IsLong(shape, sequence)) continue;
      cost += NumTiles(shape, sequence, tile_rows) * TileKeys(shape, sequence, tile_rows) *
              (tile_rows + kLoadRows);
    }
    if (cost < best_cost) {
      best = tile_rows;
      best_cost = cost;
    }
  }
  return best;
}

// What a split into chunks makes of the sequences that are not long.
struct SplitSize {
  int64_t num_items = 0;  // of one kv head
  int64_t num_partial_rows = 0;
};

SplitSize SizeOfSplit(const PrefillShape& shape, std::span<const AttentionSequence> sequences,
                      int64_t tile_rows, int64_t chunk_tokens) {
  SplitSize size;
  for (const AttentionSequence& sequence : sequences) {
    if (IsLong(shape, sequence)) continue;
    const int64_t num_chunks = DivideUp(TileKeys(shape, sequence, tile_rows), chunk_tokens);
    size.num_items += NumTiles(shape, sequence, tile_rows) * num_chunks;
    size.num_partial_rows += sequence.num_rows * num_chunks;
  }
  return size;
}

// How long a split takes, in keys. What takes longest is a thread block's way through its keys, one after the
// other: a split shortens it, and adds the merge. On an H200 a key takes 27 to 35 ns, two thread blocks on an
// SM make each 1.65 times as slow, and the merge takes 3 us and 8 ns for each 32 heads of a partial row.
double CostOfSplit(const PrefillShape& shape, const SplitSize& size, int64_t chunk_tokens) {
  constexpr double kSlowdown = 0.65;
  constexpr double kMergeKeys = 110;
  constexpr double kMergeKeysPerHead = 1.0 / 120;
  const int64_t blocks_per_sm = DivideUp(size.num_items * shape.num_kv_heads, shape.num_sms);
  return static_cast<double>(chunk_tokens) * (1 + kSlowdown * static_cast<double>(blocks_per_sm - 1)) +
         kMergeKeys + kMergeKeysPerHead * static_cast<double>(size.num_partial_rows * shape.num_heads);
}

// Tokens of a chunk such that all items run at once; 0: no split, which is about as good.
int64_t ChooseChunkTokens(const PrefillShape& shape, std::span<const AttentionSequence> sequences,
                          int64_t tile_rows) {
  constexpr int64_t kMinChunkTokens = 128;
  constexpr double kWorthSplitting = 0.9;
  const int64_t max_items = kBlocksPerSm * shape.num_sms / shape.num_kv_heads;
  int64_t max_keys = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (!IsLong(shape, sequence)) max_keys = std::max(max_keys, TileKeys(shape, sequence, tile_rows));
  }
  int64_t best = 0;
  double best_cost = kWorthSplitting * static_cast<double>(max_keys);
  for (int64_t num_chunks = 2;; ++num_chunks) {
    const int64_t chunk_tokens = RoundUp(DivideUp(max_keys, num_chunks), shape.block_size);
    if (chunk_tokens < kMinChunkTokens) return best;
    const SplitSize size = SizeOfSplit(shape, sequences, tile_rows, chunk_tokens);
    if (size.num_items > max_items) return best;
    const double cost = CostOfSplit(shape, size, chunk_tokens);
    if (cost >= best_cost) continue;
    best = chunk_tokens;
    best_cost = cost;
  }
}

struct Item {
  int64_t keys = 0;
  int32_t sequence = 0;
  int32_t tile = 0;
  int32_t chunk = 0;
};

// The longest first, so that no thread block starts one when the others are done.
void SortItems(std::vector<Item>* items) {
  const auto longer = [](const Item& a, const Item& b) { return a.keys > b.keys; };
  if (!std::is_sorted(items->begin(), items->end(), longer)) {
    std::stable_sort(items->begin(), items->end(), longer);
  }
}

class PlanWriter {
 public:
  PlanWriter(const PrefillShape& shape, std::span<const AttentionSequence> sequences, std::span<int32_t> ints)
      : shape_(shape), sequences_(sequences), ints_(ints) {}

  PrefillPlan Write() {
    plan_.num_sequences = static_cast<int64_t>(sequences_.size());
    plan_.first_row = sequences_.empty() ? 0 : sequences_[0].row_begin;
    plan_.tile_rows = ChooseTileRows(shape_, sequences_);
    const int64_t chunk_tokens = ChooseChunkTokens(shape_, sequences_, plan_.tile_rows);
    plan_.split = chunk_tokens > 0;
    chunk_tokens_ = plan_.split ? chunk_tokens : std::numeric_limits<int32_t>::max();
    WriteSequences();
    WriteItems();
    WriteLongItems();
    if (plan_.split) WriteMerge();
    return plan_;
  }

 private:
  int64_t Take(int64_t count) {
    const int64_t begin = plan_.num_ints;
    plan_.num_ints += count;
    TANDEM_CHECK(plan_.num_ints <= static_cast<int64_t>(ints_.size()), "prefill plan: {} of {} integers",
                 plan_.num_ints, ints_.size());
    return begin;
  }
  int32_t& At(int64_t array, int64_t index) { return ints_[static_cast<size_t>(array + index)]; }

  int64_t NumChunks(const AttentionSequence& sequence) const {
    return plan_.split ? DivideUp(TileKeys(shape_, sequence, plan_.tile_rows), chunk_tokens_) : 1;
  }

  void WriteSequences() {
    const int64_t count = plan_.num_sequences;
    plan_.row_indptr = Take(count + 1);
    plan_.block_indptr = Take(count + 1);
    plan_.last_block_tokens = Take(count);
    plan_.context_len = Take(count);
    plan_.out_indptr = Take(count + 1);
    plan_.chunk_tokens = Take(1);
    At(plan_.chunk_tokens, 0) = static_cast<int32_t>(chunk_tokens_);
    int64_t row = 0;
    int64_t block = 0;
    int64_t out_row = 0;
    for (int64_t i = 0; i < count; ++i) {
      const AttentionSequence& sequence = sequences_[static_cast<size_t>(i)];
      const int64_t num_blocks = DivideUp(sequence.context_len, shape_.block_size);
      TANDEM_CHECK(sequence.row_begin == plan_.first_row + row && sequence.num_rows >= 1 &&
                       sequence.context_len >= sequence.num_rows &&
                       static_cast<int64_t>(sequence.block_table.size()) >= num_blocks,
                   "prefill sequence {}: rows [{}, +{}) after row {}, context {}, {} blocks", i,
                   sequence.row_begin, sequence.num_rows, plan_.first_row + row, sequence.context_len,
                   sequence.block_table.size());
      At(plan_.row_indptr, i) = static_cast<int32_t>(row);
      At(plan_.block_indptr, i) = static_cast<int32_t>(block);
      At(plan_.out_indptr, i) = static_cast<int32_t>(out_row);
      At(plan_.last_block_tokens, i) =
          static_cast<int32_t>(sequence.context_len - (num_blocks - 1) * shape_.block_size);
      At(plan_.context_len, i) = static_cast<int32_t>(sequence.context_len);
      row += sequence.num_rows;
      block += num_blocks;
      if (!plan_.split) {
        out_row = row;
      } else if (!IsLong(shape_, sequence)) {
        out_row += sequence.num_rows * NumChunks(sequence);
        plan_.num_merged_rows += sequence.num_rows;
      }
    }
    At(plan_.row_indptr, count) = static_cast<int32_t>(row);
    At(plan_.block_indptr, count) = static_cast<int32_t>(block);
    At(plan_.out_indptr, count) = static_cast<int32_t>(out_row);
    plan_.num_rows = row;
    plan_.num_partial_rows = plan_.split ? out_row : 0;
    plan_.block_table = Take(block);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = At(plan_.block_indptr, i);
      std::copy_n(sequences_[static_cast<size_t>(i)].block_table.begin(),
                  At(plan_.block_indptr, i + 1) - begin, ints_.begin() + plan_.block_table + begin);
    }
  }

  void WriteItems() {
    const int64_t group = GroupSize(shape_);
    std::vector<Item> items;
    for (int64_t i = 0; i < plan_.num_sequences; ++i) {
      const AttentionSequence& sequence = sequences_[static_cast<size_t>(i)];
      if (IsLong(shape_, sequence)) continue;
      const int64_t num_chunks = NumChunks(sequence);
      const int64_t before = sequence.context_len - sequence.num_rows;
      for (int64_t tile = NumTiles(shape_, sequence, plan_.tile_rows) - 1; tile >= 0; --tile) {
        const int64_t first_row = tile * plan_.tile_rows / group;
        const int64_t end_row = std::min(sequence.num_rows, DivideUp((tile + 1) * plan_.tile_rows, group));
        const int64_t first_key = shape_.sliding_window > 0
                                      ? std::max<int64_t>(0, before + first_row + 1 - shape_.sliding_window)
                                      : 0;
        for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
          const int64_t keys = before + end_row - first_key - chunk * chunk_tokens_;
          items.push_back({std::clamp<int64_t>(keys, 0, chunk_tokens_), static_cast<int32_t>(i),
                           static_cast<int32_t>(tile), static_cast<int32_t>(chunk)});
        }
      }
    }
    SortItems(&items);
    plan_.num_items = static_cast<int64_t>(items.size());
    plan_.item_sequence = Take(plan_.num_items);
    plan_.item_tile = Take(plan_.num_items);
    plan_.item_chunk = Take(plan_.num_items);
    for (int64_t i = 0; i < plan_.num_items; ++i) {
      const Item& item = items[static_cast<size_t>(i)];
      At(plan_.item_sequence, i) = item.sequence;
      At(plan_.item_tile, i) = item.tile;
      At(plan_.item_chunk, i) = item.chunk;
    }
  }

  void WriteLongItems() {
    std::vector<Item> items;
    for (int64_t i = 0; i < plan_.num_sequences; ++i) {
      const AttentionSequence& sequence = sequences_[static_cast<size_t>(i)];
      if (!IsLong(shape_, sequence)) continue;
      const int64_t before = sequence.context_len - sequence.num_rows;
      for (int64_t tile = DivideUp(sequence.num_rows, shape_.long_tile_rows) - 1; tile >= 0; --tile) {
        const int64_t end_row = std::min(sequence.num_rows, (tile + 1) * shape_.long_tile_rows);
        items.push_back({before + end_row, static_cast<int32_t>(i), static_cast<int32_t>(tile), 0});
      }
    }
    SortItems(&items);
    plan_.num_long_items = static_cast<int64_t>(items.size());
    plan_.long_item_sequence = Take(plan_.num_long_items);
    plan_.long_item_tile = Take(plan_.num_long_items);
    for (int64_t i = 0; i < plan_.num_long_items; ++i) {
      At(plan_.long_item_sequence, i) = items[static_cast<size_t>(i)].sequence;
      At(plan_.long_item_tile, i) = items[static_cast<size_t>(i)].tile;
    }
  }

  void WriteMerge() {
    plan_.merge_row = Take(plan_.num_merged_rows);
    plan_.merge_indptr = Take(plan_.num_merged_rows + 1);
    int64_t merged = 0;
    int64_t partial = 0;
    for (int64_t i = 0; i < plan_.num_sequences; ++i) {
      const AttentionSequence& sequence = sequences_[static_cast<size_t>(i)];
      if (IsLong(shape_, sequence)) continue;
      const int64_t num_chunks = NumChunks(sequence);
      for (int64_t row = 0; row < sequence.num_rows; ++row, ++merged, partial += num_chunks) {
        At(plan_.merge_row, merged) = At(plan_.row_indptr, i) + static_cast<int32_t>(row);
        At(plan_.merge_indptr, merged) = static_cast<int32_t>(partial);
      }
    }
    At(plan_.merge_indptr, merged) = static_cast<int32_t>(partial);
  }

  const PrefillShape& shape_;
  std::span<const AttentionSequence> sequences_;
  std::span<int32_t> ints_;
  PrefillPlan plan_;
  int64_t chunk_tokens_ = 0;
};

}  // namespace

PrefillPlan PlanPrefill(const PrefillShape& shape, std::span<const AttentionSequence> sequences,
                        std::span<int32_t> ints) {
  return PlanWriter(shape, sequences, ints).Write();
}

int64_t MaxPrefillPlanInts(const PrefillShape& shape, const AttentionCapacity& capacity, int64_t num_plans) {
  const int64_t per_sequence = 5 * (capacity.max_sequences + num_plans) + num_plans;
  // Every sequence may have one tile that is not full; items of a split fit on the GPU.
  const int64_t tiles =
      DivideUp(capacity.max_rows * GroupSize(shape), shape.small_tile_rows) + capacity.max_sequences;
  const int64_t items = tiles + num_plans * kBlocksPerSm * shape.num_sms;
  const int64_t long_items = DivideUp(capacity.max_rows, shape.long_tile_rows) + capacity.max_sequences;
  return per_sequence + capacity.max_blocks + 3 * items + 2 * long_items + 2 * capacity.max_rows + num_plans;
}

int64_t MaxPartialHeads(const PrefillShape& shape) {
  // A split has at most kBlocksPerSm * num_sms / num_kv_heads items of tile_rows rows of a head each; the
  // rows of a sequence times its chunks are no more.
  return kBlocksPerSm * shape.num_sms * shape.large_tile_rows;
}

}  // namespace tandem
