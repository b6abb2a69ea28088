#include "perf/cost_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tandem {
namespace {

TEST(CostCurve, ExactAtPointsLinearBetweenAndBeyond) {
  const CostCurve curve({{2, 10}, {4, 20}, {8, 60}});
  EXPECT_DOUBLE_EQ(curve.Us(2), 10);
  EXPECT_DOUBLE_EQ(curve.Us(3), 15);
  EXPECT_DOUBLE_EQ(curve.Us(4), 20);
  EXPECT_DOUBLE_EQ(curve.Us(5), 30);
  EXPECT_DOUBLE_EQ(curve.Us(8), 60);
  EXPECT_DOUBLE_EQ(curve.Us(18), 160);
  EXPECT_DOUBLE_EQ(curve.Us(1), 5);
}

TEST(CostCurve, NeverNegativeBeforeTheFirstPoint) {
  const CostCurve curve({{10, 1}, {20, 100}});
  EXPECT_DOUBLE_EQ(curve.Us(1), 0);
}

TEST(CostCurve, LowersWhatWouldFall) {
  const CostCurve curve({{1, 10}, {2, 8}, {3, 12}});
  EXPECT_DOUBLE_EQ(curve.Us(1), 8);
  EXPECT_DOUBLE_EQ(curve.Us(2), 8);
  EXPECT_DOUBLE_EQ(curve.Us(3), 12);
}

TEST(CostCurve, OnePointIsProportionalBeyondIt) {
  const CostCurve curve({{10, 50}});
  EXPECT_DOUBLE_EQ(curve.Us(20), 100);
  EXPECT_DOUBLE_EQ(curve.Us(5), 50);
}

TEST(CostCurve, LastSlopeIgnoresANeighbourTooClose) {
  const CostCurve curve({{100, 100}, {199, 200}, {200, 200}});
  EXPECT_DOUBLE_EQ(curve.Us(300), 300);
}

TEST(CostSurface, ExactAtPointsAndBilinearBetween) {
  // us = 5 rows + 2 tokens.
  const CostSurface surface({{1, {{10, 25}, {100, 205}}}, {5, {{10, 45}, {100, 225}}}});
  EXPECT_DOUBLE_EQ(surface.Us(1, 10), 25);
  EXPECT_DOUBLE_EQ(surface.Us(5, 100), 225);
  EXPECT_DOUBLE_EQ(surface.Us(3, 10), 35);
  EXPECT_DOUBLE_EQ(surface.Us(3, 55), 125);
  // Beyond, in each direction and both.
  EXPECT_DOUBLE_EQ(surface.Us(9, 10), 65);
  EXPECT_DOUBLE_EQ(surface.Us(5, 200), 425);
  EXPECT_DOUBLE_EQ(surface.Us(9, 200), 445);
}

TEST(CostSurface, LinesOfDifferentReach) {
  // us = 5 rows + 2 tokens again, each line where a batch of so many rows lies.
  const CostSurface surface(
      {{1, {{8, 21}, {64, 133}}}, {4, {{32, 84}, {256, 532}}}, {16, {{128, 336}, {1024, 2128}}}});
  for (const int64_t rows : {1, 2, 4, 10, 16, 40}) {
    for (const int64_t tokens : {128, 300, 1024, 5000}) {
      EXPECT_NEAR(surface.Us(rows, tokens),
                  5.0 * static_cast<double>(rows) + 2.0 * static_cast<double>(tokens), 1e-9)
          << rows << " rows, " << tokens;
    }
  }
}

// As those of prefill attention do, whose tokens are those of one context.
TEST(CostSurface, EachLineGoesOnByItsOwnSlope) {
  // us = rows * tokens / 100.
  const CostSurface surface({{16, {{100, 16}, {1000, 160}}}, {256, {{1000, 2560}, {2000, 5120}}}});
  EXPECT_DOUBLE_EQ(surface.Us(256, 100'000), 256'000);
  EXPECT_DOUBLE_EQ(surface.Us(16, 100'000), 16'000);
  EXPECT_DOUBLE_EQ(surface.Us(136, 100'000), 136'000);
}

TEST(CostSurface, FewRowsNeverCostMoreThanMany) {
  // One long context is shared badly.
  const CostSurface surface({{1, {{64, 5}, {4096, 100}}}, {64, {{4096, 40}, {65536, 400}}}});
  EXPECT_DOUBLE_EQ(surface.Us(64, 4096), 40);
  EXPECT_DOUBLE_EQ(surface.Us(1, 4096), 40);
  EXPECT_DOUBLE_EQ(surface.Us(1, 64), 5);
}

std::vector<CostPoint> RandomPoints(int64_t first, std::mt19937* random) {
  std::uniform_int_distribution<int> num_points(1, 5);
  std::uniform_real_distribution<double> us(0, 1000);
  std::uniform_int_distribution<int64_t> step(1, 400);
  std::vector<CostPoint> points;
  int64_t count = first;
  for (int i = num_points(*random); i > 0; --i) {
    points.push_back({count, us(*random)});
    count += step(*random);
  }
  return points;
}

// Whatever is measured, however noisy.
TEST(CostTable, NoCostFallsOrIsNegative) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int64_t> rows(0, 60);
  std::uniform_int_distribution<int64_t> tokens(0, 4000);
  const auto lines = [&] {
    std::vector<CostLine> result;
    int64_t next = 1;
    for (int64_t i = 1 + rows(random) % 4; i > 0; --i) {
      result.push_back({next, RandomPoints(next + tokens(random) % 100, &random)});
      next += 1 + rows(random) / 4;
    }
    return result;
  };
  for (int round = 0; round < 300; ++round) {
    CostMeasurements measurements;
    measurements.num_layers = 3;
    measurements.linear = RandomPoints(1, &random);
    measurements.outside_layers = RandomPoints(0, &random);
    measurements.exchange = RandomPoints(1, &random);
    measurements.swap = RandomPoints(16, &random);
    measurements.gpu_decode_attention = lines();
    measurements.prefill_attention = lines();
    measurements.cpu_attention = lines();
    const auto table = CostTable::Create(measurements);
    ASSERT_TRUE(table.ok()) << table.error().message;
    for (int i = 0; i < 200; ++i) {
      const int64_t r = rows(random);
      const int64_t t = tokens(random);
      const int64_t more_r = r + rows(random);
      const int64_t more_t = t + tokens(random);
      const double tolerance = 1e-9;
      const auto check = [&](auto cost, const char* name) {
        const double us = cost(r, t);
        EXPECT_TRUE(std::isfinite(us) && us >= 0) << name << " " << r << " " << t << ": " << us;
        EXPECT_GE(cost(more_r, t) * (1 + tolerance), us) << name << " " << r << ".." << more_r << ", " << t;
        EXPECT_GE(cost(r, more_t) * (1 + tolerance), us) << name << " " << r << ", " << t << ".." << more_t;
      };
      check([&](int64_t a, int64_t /*b*/) { return table->LinearUs(a); }, "linear");
      check([&](int64_t /*a*/, int64_t b) { return table->LinearUs(b); }, "linear");
      check([&](int64_t a, int64_t b) { return table->GpuDecodeAttentionUs(a, b); }, "gpu decode");
      check([&](int64_t a, int64_t b) { return table->PrefillAttentionUs(a, b); }, "prefill");
      check([&](int64_t a, int64_t b) { return table->CpuAttentionUs(a, b); }, "cpu");
      check([&](int64_t a, int64_t /*b*/) { return table->ExchangeUs(a); }, "exchange");
      check([&](int64_t /*a*/, int64_t b) { return table->SwapUs(b); }, "swap");
      check([&](int64_t a, int64_t /*b*/) { return table->OutsideLayersUs(a); }, "outside");
    }
    EXPECT_EQ(table->LinearUs(0), 0);
    EXPECT_EQ(table->GpuDecodeAttentionUs(0, 0), 0);
    EXPECT_EQ(table->PrefillAttentionUs(0, 100), 0);
    EXPECT_EQ(table->CpuAttentionUs(0, 0), 0);
    EXPECT_EQ(table->ExchangeUs(0), 0);
    EXPECT_EQ(table->SwapUs(0), 0);
    // Not nothing: an iteration starts even if it samples no row.
    double lowest_us = measurements.outside_layers[0].us;
    for (const CostPoint& point : measurements.outside_layers) lowest_us = std::min(lowest_us, point.us);
    EXPECT_EQ(table->OutsideLayersUs(0), lowest_us);
  }
}

CostMeasurements Valid() {
  return {.num_layers = 2,
          .linear = {{1, 1}},
          .gpu_decode_attention = {{1, {{1, 1}}}},
          .prefill_attention = {{1, {{1, 1}}}},
          .outside_layers = {{0, 1}}};
}

TEST(CostTable, RefusesWhatIsNoMeasurement) {
  const auto refused = [](auto change, const std::string& says) {
    CostMeasurements measurements = Valid();
    change(&measurements);
    const auto table = CostTable::Create(measurements);
    ASSERT_FALSE(table.ok()) << says;
    EXPECT_NE(table.error().message.find(says), std::string::npos) << table.error().message;
  };
  ASSERT_TRUE(CostTable::Create(Valid()).ok());
  refused([](CostMeasurements* m) { m->num_layers = 0; }, "0 layers");
  refused([](CostMeasurements* m) { m->linear.clear(); }, "linear");
  refused([](CostMeasurements* m) { m->linear = {{0, 1}}; }, "ascend");
  refused([](CostMeasurements* m) { m->linear = {{5, 1}, {5, 2}}; }, "ascend");
  refused([](CostMeasurements* m) { m->linear[0].us = -1; }, "impossible");
  refused([](CostMeasurements* m) { m->linear[0].us = std::numeric_limits<double>::quiet_NaN(); },
          "impossible");
  refused([](CostMeasurements* m) { m->outside_layers[0].us = std::numeric_limits<double>::infinity(); },
          "outside");
  refused([](CostMeasurements* m) { m->gpu_decode_attention[0].points.clear(); }, "gpu decode");
  refused([](CostMeasurements* m) { m->prefill_attention.push_back(m->prefill_attention[0]); }, "rows");
  refused([](CostMeasurements* m) { m->all_reduce = {{2, 1}, {1, 1}}; }, "sums");
  refused([](CostMeasurements* m) { m->cpu_attention = {{1, {{1, 1}}}}; }, "exchange");
}

TEST(CostTable, ALayerOfAShardHasTwoSums) {
  CostMeasurements measurements = Valid();
  measurements.linear = {{1, 100}, {9, 108}};
  measurements.all_reduce = {{1, 3}, {5, 3}, {13, 11}};
  const CostTable table = CostTable::Create(measurements).value();
  EXPECT_DOUBLE_EQ(table.LinearUs(1), 100 + 2 * 3);
  EXPECT_DOUBLE_EQ(table.LinearUs(5), 104 + 2 * 3);
  EXPECT_DOUBLE_EQ(table.LinearUs(7), 106 + 2 * 5);
  EXPECT_DOUBLE_EQ(table.LinearUs(9), 108 + 2 * 7);
  EXPECT_DOUBLE_EQ(table.LinearUs(13), 112 + 2 * 11);
  EXPECT_EQ(table.LinearUs(0), 0);
  EXPECT_EQ(table.measurements(), measurements);
  measurements.all_reduce.clear();
  EXPECT_DOUBLE_EQ(CostTable::Create(measurements).value().LinearUs(5), 104);
}

TEST(CostTable, AnUnmeasuredCpuTierIsNeverWorthIt) {
  const auto table = CostTable::Create(Valid());
  ASSERT_TRUE(table.ok());
  EXPECT_GT(table->CpuAttentionUs(1, 1), 1e7);
  EXPECT_GT(table->ExchangeUs(1), 1e7);
  EXPECT_GT(table->SwapUs(1), 1e7);
  EXPECT_EQ(table->CpuAttentionUs(0, 0), 0);
}

}  // namespace
}  // namespace tandem
