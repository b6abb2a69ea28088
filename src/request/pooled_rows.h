// The hidden states of a sequence on their way to one embedding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pooling.h"

namespace tandem {

// Sums up row by row, so that the sum is the same however the rows are cut into chunks.
class PooledRows {
 public:
  // num_rows rows, of consecutive tokens from position on, behind those that were added before. Rows from
  // position 0 on begin anew: a preempted sequence computes them again.
  void Add(Pooling pooling, int64_t position, int64_t num_rows, std::span<const float> rows);
  // The mean of the rows. CHECKs that there are some.
  std::vector<float> Mean() const;
  int64_t num_rows() const { return num_rows_; }

 private:
  std::vector<double> sum_;
  int64_t num_rows_ = 0;
};

}  // namespace tandem
