#include "server/latency_window.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using std::chrono::seconds;

TEST(LatencyWindowTest, PercentilesOfWhatWasAdded) {
  const SlidingLatencies::TimePoint now{seconds(1'000)};
  SlidingLatencies latencies;
  EXPECT_EQ(latencies.Summary(now).count, 0U);
  for (int i = 1; i <= 100; ++i) latencies.Add(0.001 * i, now + seconds(i % 20));
  const LatencySummary summary = latencies.Summary(now + seconds(20));
  EXPECT_EQ(summary.count, 100U);
  EXPECT_NEAR(summary.p50_ms, 50, 3);
  EXPECT_NEAR(summary.p90_ms, 90, 4);
  EXPECT_NEAR(summary.p99_ms, 99, 5);
}

TEST(LatencyWindowTest, ForgetsAfterAMinute) {
  const SlidingLatencies::TimePoint begin{seconds(1'000)};
  SlidingLatencies latencies;
  latencies.Add(0.5, begin);
  latencies.Add(0.001, begin + seconds(30));
  EXPECT_EQ(latencies.Summary(begin + seconds(54)).count, 2U);
  EXPECT_EQ(latencies.Summary(begin + seconds(66)).count, 1U);
  EXPECT_LT(latencies.Summary(begin + seconds(66)).p99_ms, 2);
  // The same slot again, a minute later.
  latencies.Add(0.002, begin + seconds(60));
  EXPECT_EQ(latencies.Summary(begin + seconds(66)).count, 2U);
  EXPECT_EQ(latencies.Summary(begin + seconds(600)).count, 0U);
}

}  // namespace
}  // namespace tandem
