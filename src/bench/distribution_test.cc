#include "bench/distribution.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

TEST(Percentile, LiesBetweenTheNearestRanks) {
  const std::vector<double> sorted = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 50), 25);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 90), 37);
  EXPECT_DOUBLE_EQ(Percentile({7}, 99), 7);
}

TEST(Summarize, DoesNotNeedOrder) {
  std::vector<double> values;
  for (int i = 0; i <= 1000; ++i) values.push_back((i * 271) % 1001);  // every number from 0 to 1000 once
  const auto distribution = Summarize(values);
  ASSERT_TRUE(distribution.has_value());
  EXPECT_DOUBLE_EQ(distribution->mean, 500);
  EXPECT_DOUBLE_EQ(distribution->median, 500);
  EXPECT_DOUBLE_EQ(distribution->p90, 900);
  EXPECT_DOUBLE_EQ(distribution->p99, 990);
}

TEST(Summarize, NothingHasNoDistribution) {
  EXPECT_FALSE(Summarize({}).has_value());
}

TEST(DistributionTest, AllPercentilesAreThoseOfEachPercent) {
  const std::vector<double> percentiles = AllPercentiles({3, 1, 2});
  ASSERT_EQ(percentiles.size(), 101U);
  EXPECT_EQ(percentiles.front(), 1);
  EXPECT_EQ(percentiles[50], 2);
  EXPECT_NEAR(percentiles[75], 2.5, 1e-12);
  EXPECT_EQ(percentiles.back(), 3);
  EXPECT_TRUE(AllPercentiles({}).empty());
}

}  // namespace
}  // namespace tandem
