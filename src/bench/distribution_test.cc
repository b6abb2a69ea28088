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

}  // namespace
}  // namespace tandem
