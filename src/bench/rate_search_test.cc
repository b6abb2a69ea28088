#include "bench/rate_search.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace tandem {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Plays a search against a machine whose latency is a function of the rate.
template <typename Latency>
RateSearch Play(double first_rate, double limit_s, Latency latency) {
  RateSearch search(first_rate, limit_s);
  while (const std::optional<double> rate = search.NextRate()) search.Add({*rate, latency(*rate)});
  return search;
}

// A queue that grows without end from `capacity` on.
double QueueLatency(double rate, double capacity) {
  return rate >= capacity ? kInfinite : 0.02 / (1 - rate / capacity);
}

TEST(RateSearch, FindsWhereLatencyPassesTheLimit) {
  // 0.02 / (1 - r / 7) is 0.2 at 6.3.
  for (const double first : {0.01, 0.9, 6.2, 40.0}) {
    const RateSearch search = Play(first, 0.2, [](double rate) { return QueueLatency(rate, 7); });
    ASSERT_TRUE(search.within() && search.beyond()) << first;
    EXPECT_LE(search.within()->rate, 6.3) << first;
    EXPECT_GT(search.beyond()->rate, 6.3) << first;
    if (std::ssize(search.trials()) < RateSearch::kMaxTrials) {
      EXPECT_LE(search.beyond()->rate, RateSearch::kResolution * search.within()->rate) << first;
      EXPECT_NEAR(*search.highest_rate(), 6.3, 0.32) << first;
    }
  }
}

TEST(RateSearch, InterpolatesLatency) {
  RateSearch search(10, 1.0);
  search.Add({10, 0.5});
  search.Add({20, 2.5});
  EXPECT_DOUBLE_EQ(*search.highest_rate(), 12.5);
  search.Add({14, kInfinite});
  EXPECT_DOUBLE_EQ(*search.highest_rate(), 10) << "nothing is known of the latency at 14";
}

TEST(RateSearch, EndsInBoundedTime) {
  const RateSearch never = Play(1, 1.0, [](double) { return kInfinite; });
  EXPECT_EQ(std::ssize(never.trials()), RateSearch::kMaxTrials);
  EXPECT_FALSE(never.highest_rate().has_value());
  const RateSearch always = Play(1, 1.0, [](double) { return 0.1; });
  EXPECT_EQ(std::ssize(always.trials()), RateSearch::kMaxTrials);
  EXPECT_DOUBLE_EQ(*always.highest_rate(), 2048);
  std::set<double> rates;
  for (const RateTrial& trial : always.trials()) EXPECT_TRUE(rates.insert(trial.rate).second);
}

TEST(RateSearch, NoiseNeverPutsTheAnswerAboveARateThatWasBeyond) {
  RateSearch search(8, 1.0);
  search.Add({8, 0.3});
  search.Add({16, 2.0});
  search.Add({6, 1.5});
  EXPECT_EQ(search.beyond()->rate, 6);
  EXPECT_FALSE(search.within().has_value());
  EXPECT_DOUBLE_EQ(*search.NextRate(), 3);
}

}  // namespace
}  // namespace tandem
