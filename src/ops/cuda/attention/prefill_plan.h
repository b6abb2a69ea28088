// How a batch of prefills is cut into the thread blocks of the prefill kernels. No device here.
//
// A tile is tile_rows rows of one kv head's query heads (row 0 of all heads of the group, then row 1, ...).
// An item is a tile and a chunk of its keys. Without a split an item has all keys and writes the result; with
// a split all items write partial results, which are merged. Long sequences may have tiles of their own
// kernel.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace tandem {

struct PrefillShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t block_size = 32;
  int64_t sliding_window = 0;  // as in AttentionArgs
  int64_t num_sms = 1;
  // Rows a tile may have, ascending; the first is small_tile_rows, the last large_tile_rows.
  int64_t small_tile_rows = 16;
  int64_t large_tile_rows = 128;
  // Sequences of at least so many rows are for the long kernel, in tiles of so many rows of one head. 0:
  // none.
  int64_t long_rows = 0;
  int64_t long_tile_rows = 128;
};

// Offsets are in int32_t from the begin of the plan's array. Rows count from first_row.
struct PrefillPlan {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  int64_t tile_rows = 0;
  bool split = false;
  int64_t num_items = 0;
  int64_t num_long_items = 0;
  int64_t num_merged_rows = 0;   // rows that have partial results
  int64_t num_partial_rows = 0;  // their partial results
  int64_t num_ints = 0;

  int64_t row_indptr = 0;         // [sequences + 1]
  int64_t block_indptr = 0;       // [sequences + 1]
  int64_t last_block_tokens = 0;  // [sequences]
  int64_t context_len = 0;        // [sequences]
  int64_t out_indptr = 0;         // [sequences + 1]: rows, or partial rows if split
  int64_t chunk_tokens = 0;       // [1]
  int64_t block_table = 0;        // [block_indptr[sequences]]
  int64_t item_sequence = 0;      // [items], most keys first
  int64_t item_tile = 0;
  int64_t item_chunk = 0;
  int64_t long_item_sequence = 0;  // [long items], most keys first
  int64_t long_item_tile = 0;
  int64_t merge_row = 0;     // [merged rows]
  int64_t merge_indptr = 0;  // [merged rows + 1]: where the partial results of a row lie
};

// Rows of q follow each other over the sequences. ints has room for MaxPrefillPlanInts.
PrefillPlan PlanPrefill(const PrefillShape& shape, std::span<const AttentionSequence> sequences,
                        std::span<int32_t> ints);

// For any batch within the capacity, in num_plans plans one behind the other.
int64_t MaxPrefillPlanInts(const PrefillShape& shape, const AttentionCapacity& capacity,
                           int64_t num_plans = 1);
// Elements of partial results (partial rows * heads) that any plan has.
int64_t MaxPartialHeads(const PrefillShape& shape);

}  // namespace tandem
