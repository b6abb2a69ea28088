#include "bench/balanced_throughput.h"

#include <gtest/gtest.h>

#include "perf/analytic_costs.h"

namespace tandem {
namespace {

// 10 layers of 10 us a token, attention aside.
AnalyticCosts Costs() {
  AnalyticCosts costs;
  costs.layers = 10;
  costs.linear_token_us = 10;
  return costs;
}

constexpr MeanLengths kLengths = {.computed_per_output = 5, .context = 1100, .prompt = 1000};

TEST(BalancedThroughput, IsTheThroughputOfAWindowInBalance) {
  const WindowWork work = {
      .seconds = 2, .iterations = 100, .prefill_tokens = 100, .gpu_tier_tokens = 15, .cpu_tier_tokens = 5};
  EXPECT_NEAR(BalancedThroughput(Costs(), kLengths, work).value(), 1000, 1e-6);
}

// 50 prompt tokens too many of 100 us each: 15 of 20 ms are left.
TEST(BalancedThroughput, TakesOutWhatFilledATier) {
  const WindowWork work = {
      .seconds = 2, .iterations = 100, .prefill_tokens = 150, .gpu_tier_tokens = 15, .cpu_tier_tokens = 5};
  EXPECT_NEAR(BalancedThroughput(Costs(), kLengths, work).value(), 20 / 15e-3, 1e-6);
}

TEST(BalancedThroughput, AddsWhatWasMissing) {
  const WindowWork work = {
      .seconds = 2, .iterations = 100, .prefill_tokens = 60.5, .gpu_tier_tokens = 20, .cpu_tier_tokens = 0};
  EXPECT_NEAR(BalancedThroughput(Costs(), kLengths, work).value(), 20 / 23.95e-3, 1e-6);
}

TEST(BalancedThroughput, CountsAttention) {
  AnalyticCosts costs = Costs();
  costs.prefill_ns = 20;  // 10 us a token of a prompt of 1000 tokens, a layer
  const WindowWork work = {
      .seconds = 2, .iterations = 100, .prefill_tokens = 120, .gpu_tier_tokens = 20, .cpu_tier_tokens = 0};
  EXPECT_NEAR(BalancedThroughput(costs, kLengths, work).value(), 20 / 16e-3, 1e-6);
}

TEST(BalancedThroughput, FarFromBalanceItSaysNothing) {
  WindowWork work = {.seconds = 2, .iterations = 100, .prefill_tokens = 210, .gpu_tier_tokens = 20};
  EXPECT_FALSE(BalancedThroughput(Costs(), kLengths, work));
  work.prefill_tokens = 40;
  EXPECT_FALSE(BalancedThroughput(Costs(), kLengths, work));
  work.prefill_tokens = 100;
  EXPECT_TRUE(BalancedThroughput(Costs(), kLengths, work));
  work.iterations = 0;
  EXPECT_FALSE(BalancedThroughput(Costs(), kLengths, work));
  EXPECT_FALSE(BalancedThroughput(Costs(), kLengths, {.seconds = 1, .iterations = 10}));
}

}  // namespace
}  // namespace tandem
