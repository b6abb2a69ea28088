#include "base/duration_histogram.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DurationHistogramTest, QuantilesLieWithinABucket) {
  DurationHistogram histogram;
  for (int i = 1; i <= 1000; ++i) histogram.AddUs(i * 10.0);
  EXPECT_EQ(histogram.count(), 1000U);
  EXPECT_DOUBLE_EQ(histogram.MeanUs(), 5005.0);
  EXPECT_NEAR(histogram.QuantileUs(0.5), 5000.0, 5000.0 * 0.03);
  EXPECT_NEAR(histogram.QuantileUs(0.99), 9900.0, 9900.0 * 0.03);
  EXPECT_NEAR(histogram.QuantileUs(1.0), 10000.0, 10000.0 * 0.03);
  EXPECT_NEAR(histogram.QuantileUs(0.0), 10.0, 0.5);
}

TEST(DurationHistogramTest, ExtremesAreCountedAtTheEnds) {
  DurationHistogram histogram;
  EXPECT_EQ(histogram.QuantileUs(0.5), 0.0);
  histogram.AddUs(0.0);
  histogram.AddUs(1e15);
  EXPECT_EQ(histogram.count(), 2U);
  EXPECT_LT(histogram.QuantileUs(0.5), 0.2);
  EXPECT_GT(histogram.QuantileUs(1.0), 1e8);
}

TEST(DurationHistogramTest, DifferenceOfTwoSnapshots) {
  DurationHistogram histogram;
  histogram.AddUs(1.0);
  const DurationHistogram before = histogram;
  histogram.AddUs(100.0);
  histogram.AddUs(300.0);
  const DurationHistogram since = histogram.Since(before);
  EXPECT_EQ(since.count(), 2U);
  EXPECT_DOUBLE_EQ(since.MeanUs(), 200.0);
  EXPECT_NEAR(since.QuantileUs(0.5), 100.0, 3.0);
}

}  // namespace
}  // namespace tandem
