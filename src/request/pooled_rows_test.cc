#include "request/pooled_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

const std::vector<float> kRows = {1e8F, 1, 3, 0.1F, -1e8F, 2};  // three of two values

std::vector<float> MeanOf(const std::vector<int64_t>& chunks) {
  PooledRows pooled;
  int64_t position = 0;
  for (const int64_t num_rows : chunks) {
    const auto begin = kRows.begin() + 2 * position;
    pooled.Add(Pooling::kMean, position, num_rows, std::vector<float>(begin, begin + 2 * num_rows));
    position += num_rows;
  }
  EXPECT_EQ(pooled.num_rows(), 3);
  return pooled.Mean();
}

TEST(PooledRowsTest, AMeanIsTheSameHoweverItsRowsCome) {
  const std::vector<float> mean = MeanOf({3});
  EXPECT_FLOAT_EQ(mean[0], 1.0F);
  EXPECT_FLOAT_EQ(mean[1], 3.1F / 3.0F);
  EXPECT_EQ(MeanOf({1, 1, 1}), mean);
  EXPECT_EQ(MeanOf({2, 1}), mean);
}

TEST(PooledRowsTest, APreemptedSequenceBeginsAnew) {
  PooledRows pooled;
  pooled.Add(Pooling::kMean, 0, 2, std::vector<float>{5, 5, 7, 7});
  pooled.Add(Pooling::kMean, 0, 1, std::vector<float>{2, 3});
  pooled.Add(Pooling::kMean, 1, 1, std::vector<float>{4, 5});
  EXPECT_EQ(pooled.Mean(), (std::vector<float>{3, 4}));
}

TEST(PooledRowsTest, OfOneRowItIsThatRow) {
  PooledRows pooled;
  pooled.Add(Pooling::kLast, 17, 1, std::vector<float>{0.1F, 0.2F});
  pooled.Add(Pooling::kLast, 18, 0, {});
  EXPECT_EQ(pooled.Mean(), (std::vector<float>{0.1F, 0.2F}));
  pooled.Add(Pooling::kFirst, 0, 1, std::vector<float>{3, 4});
  pooled.Add(Pooling::kFirst, 0, 1, std::vector<float>{5, 6});
  EXPECT_EQ(pooled.Mean(), (std::vector<float>{5, 6}));
}

TEST(PooledRowsDeathTest, NoRowIsLeftOut) {
  PooledRows pooled;
  pooled.Add(Pooling::kMean, 0, 1, std::vector<float>{1});
  EXPECT_DEATH(pooled.Add(Pooling::kMean, 2, 1, std::vector<float>{1}), "rows from 2 on behind 1 rows");
  EXPECT_DEATH(PooledRows().Mean(), "an embedding of no rows");
}

}  // namespace
}  // namespace tandem
