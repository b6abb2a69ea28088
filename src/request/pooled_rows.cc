#include "request/pooled_rows.h"

#include <cstddef>

#include "base/check.h"

namespace tandem {

void PooledRows::Add(Pooling pooling, int64_t position, int64_t num_rows, std::span<const float> rows) {
  if (num_rows == 0) return;
  if (pooling != Pooling::kMean || position == 0) {
    sum_.clear();
    num_rows_ = 0;
  }
  TANDEM_CHECK(pooling != Pooling::kMean || position == num_rows_, "rows from {} on behind {} rows", position,
               num_rows_);
  const size_t size = rows.size() / static_cast<size_t>(num_rows);
  sum_.resize(size, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) sum_[i % size] += static_cast<double>(rows[i]);
  num_rows_ += num_rows;
}

std::vector<float> PooledRows::Mean() const {
  TANDEM_CHECK(num_rows_ > 0, "an embedding of no rows");
  std::vector<float> mean;
  mean.reserve(sum_.size());
  for (const double sum : sum_) mean.push_back(static_cast<float>(sum / static_cast<double>(num_rows_)));
  return mean;
}

}  // namespace tandem
