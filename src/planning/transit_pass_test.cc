#include "planning/transit_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "perf/analytic_costs.h"
#include "perf/time_model.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

// Llama-3.1-8B on 16 SMs beside decodes of 8 ms.
AnalyticCosts Costs() {
  return SmallSliceCosts(30, 110);
}

TransitRules Beside(double decodes_us) {
  return {.beside_us = decodes_us, .limit_us = 4 * decodes_us};
}

TEST(TransitPassTest, AChunkTakesSeveralIterationsIfItsCopiesDo) {
  const AnalyticCosts costs = Costs();
  const TransitRules rules = Beside(8'000);
  // 32 layers of 8,000 tokens are copied in 21 ms, those of 65,000 in 170 ms.
  EXPECT_FALSE(rules.TakesSeveralIterations(0, costs));
  EXPECT_FALSE(rules.TakesSeveralIterations(8'000, costs));
  EXPECT_TRUE(rules.TakesSeveralIterations(65'000, costs));
  EXPECT_FALSE(Beside(50'000).TakesSeveralIterations(65'000, costs));
}

TEST(TransitPassTest, TokensFillWhatOneLayerHasTimeForOrWhatItsCopiesHide) {
  const AnalyticCosts costs = Costs();
  const TimeModel time(costs);
  for (const int64_t start : {20'000, 65'000, 131'000}) {
    for (const double decodes_us : {500.0, 8'000.0}) {
      const TransitRules rules = Beside(decodes_us);
      const int64_t num_tokens = TokensInTransit(rules, costs, {}, start, 100'000);
      const auto layer = [&](int64_t tokens) {
        return time.TransitLayerOf({testing::Chunk(1, start, tokens, false, Tier::kCpu)});
      };
      EXPECT_LE(layer(num_tokens).compute_us, std::max(3 * decodes_us, layer(num_tokens).copies_us));
      EXPECT_GT(layer(num_tokens + 1).compute_us, std::max(3 * decodes_us, layer(num_tokens + 1).copies_us));
    }
  }
  EXPECT_EQ(TokensInTransit(Beside(8'000), costs, {}, 20'000, 7), 7);
  // However little time there is, a prompt goes on; another one only if there is time left.
  AnalyticCosts no_copies = costs;
  no_copies.swap_ns = 0;
  EXPECT_EQ(TokensInTransit(Beside(1), no_copies, {}, 20'000, 100), 1);
  EXPECT_EQ(TokensInTransit(Beside(1), no_copies, {testing::Chunk(1, 0, 9, false, Tier::kCpu)}, 20'000, 100),
            0);
}

TEST(TransitPassTest, VisitsKeepToTheLimitAndAreSpread) {
  const AnalyticCosts costs = Costs();
  const TimeModel time(costs);
  const TransitRules rules = Beside(8'000);
  for (const int64_t start : {14'000, 40'000, 131'000}) {
    const std::vector<RowSpan> rows = {testing::Chunk(1, start, 64, false, Tier::kCpu)};
    const TransitTimes layer = time.TransitLayerOf(rows);
    int64_t cursor = kEntry;
    while (cursor < costs.layers) {
      const std::vector<Visit> visits = VisitsInTransit(rules, costs, rows, cursor, 8'000);
      EXPECT_EQ(visits.front().layer, cursor);
      EXPECT_EQ(visits.back().boundary, costs.layers - 1);
      for (size_t i = 1; i < visits.size(); ++i) {
        EXPECT_EQ(visits[i].layer, visits[i - 1].layer + 1);
        EXPECT_GT(visits[i].boundary, visits[i - 1].boundary);
      }
      const auto count = static_cast<double>(visits.size() - (cursor == kEntry ? 1 : 0));
      if (count > 1) {
        EXPECT_LE(8'000 + count * layer.compute_us, rules.limit_us);
        EXPECT_LE(count * layer.copies_us, rules.limit_us);
      }
      const bool all = visits.back().layer == costs.layers - 1;
      EXPECT_TRUE(all || (count + 1) * std::max(layer.copies_us, layer.compute_us) + 8'000 > rules.limit_us);
      cursor = visits.back().layer + 1;
    }
  }
}

}  // namespace
}  // namespace tandem
