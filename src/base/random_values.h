// Which values a weight without a checkpoint has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/slice.h"

namespace tandem {

// What a shard has of a matrix [*, num_columns].
struct MatrixCut {
  // As many as qkv has.
  static constexpr size_t kMostRuns = 3;

  std::vector<Slice> rows;  // at most kMostRuns, one behind the other
  Slice columns;
  int64_t num_columns = 0;

  int64_t num_rows() const {
    int64_t count = 0;
    for (const Slice& run : rows) count += run.count;
    return count;
  }
  // Of a row of the cut, its row in the matrix.
  int64_t RowInMatrix(int64_t row) const {
    for (const Slice& run : rows) {
      if (row < run.count) return run.begin + row;
      row -= run.count;
    }
    TANDEM_CHECK(false, "{} rows behind the {} of a cut", row, num_rows());
  }
  void CheckFills(int64_t filled_rows, int64_t filled_columns) const {
    TANDEM_CHECK(num_rows() == filled_rows && columns.count == filled_columns && !rows.empty() &&
                     rows.size() <= kMostRuns,
                 "[{}, {}] of {} runs of rows for [{}, {}]", num_rows(), columns.count, rows.size(),
                 filled_rows, filled_columns);
  }
};

// HashedUniform(seed, row * number of columns + column, bound), rounded.
struct RandomValues {
  uint64_t seed = 0;
  float bound = 0;
  // Of a larger matrix; null: of one that is as large as what is filled. Outlives the filling.
  const MatrixCut* part = nullptr;
};

}  // namespace tandem
