#include "ops/host/linear/linear_split.h"

namespace tandem {

LinearSplit SplitProduct(int64_t rows, int64_t num_units, int64_t weight_bytes, int num_threads,
                         int64_t group_rows) {
  constexpr int64_t kUsualChunkRows = 96;
  LinearSplit split;
  if (rows <= kMaxTileRows) {
    split.chunk_rows = rows;
    split.num_chunks = 1;
  } else {
    const int64_t chunks = (rows + kUsualChunkRows - 1) / kUsualChunkRows;
    split.chunk_rows = ((rows + chunks - 1) / chunks + group_rows - 1) / group_rows * group_rows;
    split.num_chunks = (rows + split.chunk_rows - 1) / split.chunk_rows;
  }
  if (num_threads == 1) {
    split.num_ranges = 1;
    return split;
  }
  // Few rows: reading the weights takes the time, and handing out a task costs as much as reading some KiB.
  // Many rows: several tasks a thread, so that a thread that was held up does not hold up all.
  constexpr int64_t kTaskBytes = 96 << 10;
  const int64_t wanted =
      rows >= 32 ? (4 * num_threads + split.num_chunks - 1) / split.num_chunks
                 : std::clamp<int64_t>(weight_bytes / kTaskBytes / num_threads, 1, 8) * num_threads;
  split.num_ranges = std::clamp<int64_t>(wanted, 1, num_units);
  // Whole panels where that costs no balance.
  if (num_units >= 4 * kUnitsPerPanel * split.num_ranges ||
      num_units / kUnitsPerPanel % split.num_ranges == 0) {
    split.units_a_step = kUnitsPerPanel;
  }
  return split;
}

}  // namespace tandem
