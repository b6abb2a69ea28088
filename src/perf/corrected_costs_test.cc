#include "perf/corrected_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "perf/cost_table.h"
#include "perf/time_model.h"

namespace tandem {
namespace {

CostTable Table() {
  auto table = CostTable::Create({.num_layers = 10,
                                  .linear = {{1, 100}, {1000, 1000}},
                                  .gpu_decode_attention = {{1, {{100, 10}, {10000, 1000}}}},
                                  .prefill_attention = {{100, {{100, 20}, {1000, 200}}}},
                                  .outside_layers = {{0, 100}, {100, 200}},
                                  .cpu_attention = {{1, {{100, 50}, {10000, 5000}}}},
                                  .exchange = {{1, 10}},
                                  .swap = {{32, 10}}});
  EXPECT_TRUE(table.ok());
  return std::move(table).value();
}

constexpr IterationLoad kDecodes = {.gpu_decode_rows = 10, .gpu_kv_tokens = 1000, .num_sampled = 10};
// The GPU is the longer part of both halves of a layer.
constexpr IterationLoad kGpuBound = {.prefill_tokens = 500,
                                     .prefill_attention_us = 20,
                                     .gpu_decode_rows = 10,
                                     .gpu_kv_tokens = 1000,
                                     .main_cpu_rows = 1,
                                     .main_cpu_kv_tokens = 100,
                                     .cohort_rows = 1,
                                     .cohort_kv_tokens = 100,
                                     .num_sampled = 12};

double TableUs(const CostTable& table, const IterationLoad& load) {
  return TimeModel(table).IterationUs(load);
}

class CorrectedCostsTest : public testing::Test {
 protected:
  void ObserveDecodes(int times, double factor, bool as_graph) {
    for (int i = 0; i < times; ++i) costs_.Observe(kDecodes, as_graph, factor * TableUs(table_, kDecodes), 0);
  }
  CostTable table_ = Table();
  CorrectedCosts costs_{&table_};
};

TEST_F(CorrectedCostsTest, AreTheTableAtFirst) {
  EXPECT_EQ(costs_.num_layers(), 10);
  EXPECT_EQ(costs_.LinearUs(500), table_.LinearUs(500));
  EXPECT_EQ(costs_.CpuAttentionUs(1, 500), table_.CpuAttentionUs(1, 500));
  EXPECT_EQ(costs_.PrefillAttentionUs(100, 500), table_.PrefillAttentionUs(100, 500));
  EXPECT_EQ(costs_.GpuDecodeAttentionUs(1, 500), table_.GpuDecodeAttentionUs(1, 500));
  EXPECT_EQ(costs_.ExchangeUs(5), table_.ExchangeUs(5));
  EXPECT_EQ(costs_.SwapUs(5), table_.SwapUs(5));
  EXPECT_EQ(costs_.OutsideLayersUs(5), table_.OutsideLayersUs(5));
  for (const IterationKind kind :
       {IterationKind::kGpuOnly, IterationKind::kPipelined, IterationKind::kRiding}) {
    EXPECT_EQ(costs_.IterationFactor(kind), 1);
  }
}

TEST_F(CorrectedCostsTest, LearnsModesApart) {
  for (int i = 0; i < 100; ++i) {
    ObserveDecodes(1, 0.8, true);
    ObserveDecodes(1, 1.2, false);
  }
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraph), 0.8, 0.02);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kOpByOp), 1.2, 0.02);
  // What a plan of decodes takes in each way.
  EXPECT_NEAR(costs_.PredictUs(kDecodes, IterationMode::kGraph), 0.8 * TableUs(table_, kDecodes), 50);
  EXPECT_NEAR(costs_.PredictUs(kDecodes, IterationMode::kOpByOp), 1.2 * TableUs(table_, kDecodes), 50);
  // Half of the work is done in each way.
  EXPECT_NEAR(costs_.kind_factor(IterationKind::kGpuOnly), 1.0, 0.02);
  // Nothing was said about the CPU.
  EXPECT_EQ(costs_.cpu_factor(), 1);
}

TEST_F(CorrectedCostsTest, AnUnknownModeGoesAlongAtFirst) {
  ObserveDecodes(100, 1.5, false);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraph), costs_.gpu_factor(IterationMode::kHybrid), 0.01);
  EXPECT_NEAR(costs_.LinearUs(500), 1.5 * table_.LinearUs(500), 20);
  EXPECT_NEAR(costs_.OutsideLayersUs(5), 1.5 * table_.OutsideLayersUs(5), 10);
  // Once it is known it stays where it is.
  ObserveDecodes(200, 1.0, true);
  ObserveDecodes(30, 1.9, false);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraph), 1.0, 0.02);
}

TEST_F(CorrectedCostsTest, LearnsTheCpuApartFromTheGpu) {
  const double cpu_us = 10 * 2 * table_.CpuAttentionUs(1, 100);
  for (int i = 0; i < 200; ++i) {
    const double gpu_us = TableUs(table_, kGpuBound);
    costs_.Observe(kGpuBound, false, gpu_us, 1.6 * cpu_us);
  }
  EXPECT_NEAR(costs_.cpu_factor(), 1.6, 0.03);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kHybrid), 1, 0.03);
  EXPECT_NEAR(costs_.CpuAttentionUs(1, 100), 1.6 * table_.CpuAttentionUs(1, 100), 2);
  EXPECT_EQ(costs_.ExchangeUs(1), table_.ExchangeUs(1));
}

TEST_F(CorrectedCostsTest, AnIterationOfTheCpuSaysLittleAboutTheGpu) {
  IterationLoad load = kGpuBound;
  load.main_cpu_kv_tokens = load.cohort_kv_tokens = 10000;
  for (int i = 0; i < 100; ++i) costs_.Observe(load, false, 1.3 * TableUs(table_, load), 0);
  EXPECT_LT(costs_.gpu_factor(IterationMode::kHybrid), 1.05);
  for (int i = 0; i < 100; ++i) costs_.Observe(kGpuBound, false, 1.3 * TableUs(table_, kGpuBound), 0);
  EXPECT_GT(costs_.gpu_factor(IterationMode::kHybrid), 1.2);
}

TEST_F(CorrectedCostsTest, WhatTheGpuDoesNotTakeBesideTheCpuIsHandingOver) {
  ObserveDecodes(300, 1.0, false);
  constexpr double kHandOverUs = 200;
  const auto took_us = [&](const IterationLoad& load) { return TableUs(table_, load) + 10 * kHandOverUs; };
  EXPECT_EQ(costs_.HandOverUs(), 0);
  for (int i = 0; i < 2'000; ++i) costs_.Observe(kGpuBound, false, took_us(kGpuBound), 0);
  EXPECT_LE(costs_.gpu_factor(IterationMode::kHybrid),
            1.1 * costs_.gpu_factor(IterationMode::kOpByOp) + 1e-9);
  EXPECT_NEAR(costs_.PredictUs(kGpuBound, IterationMode::kHybrid), took_us(kGpuBound),
              0.01 * took_us(kGpuBound));
  EXPECT_GT(costs_.HandOverUs(), 0);
  // Nobody hides behind it.
  EXPECT_LE(TimeModel(costs_).CohortWindowUs(kGpuBound), 1.11 * TimeModel(table_).CohortWindowUs(kGpuBound));
  // It is forgotten with the kind.
  ObserveDecodes(4'000, 1.0, false);
  EXPECT_LT(costs_.HandOverUs(), 1);
}

TEST_F(CorrectedCostsTest, AStallHardlyMoves) {
  ObserveDecodes(50, 1.0, false);
  ObserveDecodes(1, 500.0, false);
  EXPECT_LT(costs_.gpu_factor(IterationMode::kOpByOp), 1.01);
  ObserveDecodes(1, 0.001, false);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kOpByOp), 1.0, 0.01);
}

TEST_F(CorrectedCostsTest, TheFirstIterationsHardlyMove) {
  ObserveDecodes(1, 1.9, false);
  EXPECT_LT(costs_.gpu_factor(IterationMode::kOpByOp), 1.03);
}

TEST_F(CorrectedCostsTest, AWrongTableIsLearnedWithinBounds) {
  ObserveDecodes(300, 3.0, false);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kOpByOp), 3.0, 0.2);
  ObserveDecodes(2000, 100.0, false);
  EXPECT_EQ(costs_.gpu_factor(IterationMode::kOpByOp), 4.0);
  ObserveDecodes(4000, 1e-6, false);
  EXPECT_EQ(costs_.gpu_factor(IterationMode::kOpByOp), 0.25);
}

TEST_F(CorrectedCostsTest, WhatIsNoTimeIsIgnored) {
  for (const double us :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    costs_.Observe(kGpuBound, false, us, us);
  }
  costs_.Observe({}, false, 100, 100);
  EXPECT_EQ(costs_.gpu_factor(IterationMode::kHybrid), 1);
  EXPECT_EQ(costs_.cpu_factor(), 1);
  EXPECT_TRUE(std::isfinite(costs_.prediction().predicted_us));
}

TEST_F(CorrectedCostsTest, KeepsTheErrorOfItsPredictions) {
  const double us = TableUs(table_, kDecodes);
  costs_.Observe(kDecodes, true, us * 1.25, 0);
  EXPECT_EQ(costs_.prediction().num_iterations, 1);
  EXPECT_DOUBLE_EQ(costs_.prediction().predicted_us, us);
  EXPECT_DOUBLE_EQ(costs_.prediction().error_us, us * 0.25);
  const double next = costs_.PredictUs(kDecodes, IterationMode::kGraph);
  costs_.Observe(kDecodes, true, us * 0.5, 0);
  EXPECT_DOUBLE_EQ(costs_.prediction().predicted_us, us + next);
  EXPECT_DOUBLE_EQ(costs_.prediction().error_us, us * 0.25 + (next - us * 0.5));
}

constexpr IterationLoad kRiders = {.gpu_decode_rows = 10,
                                   .gpu_kv_tokens = 1000,
                                   .rider_rows = 20,
                                   .rider_kv_tokens = 2000,
                                   .rider_linear_us = 30,
                                   .rider_cpu_us = 1100,
                                   .rider_exchange_us = 100,
                                   .num_sampled = 10};

TEST_F(CorrectedCostsTest, RidersTeachTheCpuAndTheirOwnMode) {
  const double us = TableUs(table_, kRiders);
  for (int i = 0; i < 200; ++i) {
    // The load follows the costs, as that of LoadOf.
    IterationLoad load = kRiders;
    load.rider_linear_us *= costs_.gpu_factor(IterationMode::kHybrid);
    load.rider_cpu_us = 1000 * costs_.cpu_factor() + 100;
    costs_.Observe(load, true, 1.2 * us, 1300);
  }
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraphWithRiders), 1.2, 0.02);
  EXPECT_NEAR(costs_.cpu_factor(), 1.3, 0.03);
  // What is believed of riders and of the CPU is kept for a while, and fades without them.
  ObserveDecodes(1900, 1.0, true);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraphWithRiders), 1.2, 0.02);
  EXPECT_NEAR(costs_.cpu_factor(), 1.3, 0.03);
  ObserveDecodes(2000, 1.0, true);
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kGraphWithRiders), 1.0, 0.02);
  EXPECT_NEAR(costs_.cpu_factor(), 1.0, 0.02);
}

TEST_F(CorrectedCostsTest, RidersOpByOpAreTheGpusWork) {
  for (int i = 0; i < 200; ++i) {
    IterationLoad load = kRiders;
    load.rider_linear_us *= costs_.gpu_factor(IterationMode::kHybrid);
    costs_.Observe(load, false, 1.2 * TableUs(table_, kRiders), 0);
  }
  EXPECT_NEAR(costs_.gpu_factor(IterationMode::kOpByOpWithRiders), 1.2, 0.02);
  EXPECT_EQ(costs_.cpu_factor(), 1);
}

class KindsOfIterationsTest : public CorrectedCostsTest {
 protected:
  void ObserveRiders(int times, double factor) {
    for (int i = 0; i < times; ++i) {
      IterationLoad load = kRiders;
      load.rider_linear_us *= costs_.gpu_factor(IterationMode::kHybrid);
      costs_.Observe(load, true, factor * TableUs(table_, kRiders), 0);
    }
  }
  double FactorBeside(IterationKind kind, IterationKind other) const {
    return costs_.IterationFactor(kind) / costs_.IterationFactor(other);
  }
  double RidersBesideNone() const { return FactorBeside(IterationKind::kRiding, IterationKind::kGpuOnly); }
};

TEST_F(KindsOfIterationsTest, AreComparedByWhatTheyTook) {
  ObserveDecodes(600, 0.9, true);
  ObserveRiders(600, 1.1);
  EXPECT_NEAR(costs_.kind_factor(IterationKind::kRiding), 1.1, 0.02);
  // The last of what is learned of a new kind counts for the machine.
  EXPECT_NEAR(RidersBesideNone(), 1.1 / 0.9, 0.03);
}

TEST_F(KindsOfIterationsTest, ChangeTogetherOnceTheyAreKnown) {
  ObserveDecodes(300, 1.0, true);
  ObserveRiders(600, 1.1);
  const double before = RidersBesideNone();
  EXPECT_NEAR(costs_.kind_factor(IterationKind::kGpuOnly), 1.0, 0.02);
  // The machine gets warm while none is without riders.
  for (int i = 0; i < 1000; ++i) ObserveRiders(1, 1.1 * (1 + 0.09 * i / 1000));
  EXPECT_NEAR(RidersBesideNone(), before, 0.001);
  EXPECT_NEAR(costs_.kind_factor(IterationKind::kGpuOnly), 1.08, 0.03);
}

TEST_F(KindsOfIterationsTest, OneThatNobodyHasSeenIsLikeTheOthers) {
  ObserveDecodes(300, 1.2, true);
  EXPECT_NEAR(costs_.kind_factor(IterationKind::kRiding), 1.2, 0.02);
  // However little predictions are to be trusted.
  for (int i = 0; i < 600; ++i) ObserveDecodes(1, i / 50 % 2 == 0 ? 0.9 : 1.1, true);
  EXPECT_NEAR(RidersBesideNone(), 1.0, 1e-9);
}

TEST_F(KindsOfIterationsTest, AreKeptTheLongerTheOftenerTheyCameBackAsBefore) {
  ObserveDecodes(300, 1.0, true);
  ObserveRiders(600, 1.2);
  int before = 0;
  for (int n = 0; n < 4; ++n) {
    int kept = 0;
    for (; RidersBesideNone() > 1.1 && kept < 100'000; ++kept) ObserveDecodes(1, 1.0, true);
    EXPECT_GT(kept, before + 200) << n;
    EXPECT_LT(kept, 2'500 * std::sqrt(n + 1.0)) << n;
    before = kept;
    ObserveRiders(600, 1.2);
  }
  // Otherwise than before: it is looked at again as soon as at first.
  ObserveDecodes(6'000, 1.0, true);
  ObserveRiders(600, 1.5);
  ObserveDecodes(2'600, 1.0, true);
  EXPECT_LT(RidersBesideNone(), 1.1);
}

TEST_F(KindsOfIterationsTest, AreKeptTheLongerAlsoIfTheyAreLeftSoon) {
  ObserveDecodes(300, 1.0, true);
  ObserveRiders(600, 1.2);
  for (int n = 0; n < 3; ++n) {
    ObserveDecodes(4'000, 1.0, true);
    ObserveRiders(30, 1.2);
  }
  // After two such returns that are over it is kept for more than 2,000 iterations.
  ObserveRiders(20, 1.2);
  const double before = RidersBesideNone();
  ObserveDecodes(3'000, 1.0, true);
  EXPECT_NEAR(RidersBesideNone(), before, 0.01);
}

TEST_F(KindsOfIterationsTest, WhatNeitherGpuNorCpuExplainsIsTheKinds) {
  IterationLoad load = kGpuBound;
  load.main_cpu_kv_tokens = load.cohort_kv_tokens = 10000;
  ObserveDecodes(300, 1.0, true);
  for (int i = 0; i < 600; ++i) costs_.Observe(load, false, 1.2 * TableUs(table_, load), 0);
  EXPECT_LT(costs_.gpu_factor(IterationMode::kHybrid), 1.05);
  EXPECT_NEAR(FactorBeside(IterationKind::kPipelined, IterationKind::kGpuOnly), 1.2, 0.03);
}

TEST_F(CorrectedCostsTest, RidersThatAllSkipSayNothingAboutTheCpu) {
  IterationLoad load = kRiders;
  load.rider_cpu_us = load.rider_exchange_us = 0;
  for (int i = 0; i < 100; ++i) costs_.Observe(load, true, TableUs(table_, load), 500);
  EXPECT_EQ(costs_.cpu_factor(), 1);
  // Nothing but riders that add nothing.
  costs_.Observe({.rider_rows = 1}, true, 100, 100);
  EXPECT_TRUE(std::isfinite(costs_.gpu_factor(IterationMode::kGraphWithRiders)));
}

TEST(IterationMode, FollowsTheRows) {
  EXPECT_EQ(CorrectedCosts::ModeOf(kDecodes, true), IterationMode::kGraph);
  EXPECT_EQ(CorrectedCosts::ModeOf(kDecodes, false), IterationMode::kOpByOp);
  EXPECT_EQ(CorrectedCosts::ModeOf(kGpuBound, false), IterationMode::kHybrid);
  EXPECT_EQ(CorrectedCosts::ModeOf({.cohort_rows = 1}, false), IterationMode::kHybrid);
  EXPECT_EQ(CorrectedCosts::ModeOf(kRiders, true), IterationMode::kGraphWithRiders);
  EXPECT_EQ(CorrectedCosts::ModeOf(kRiders, false), IterationMode::kOpByOpWithRiders);
}

}  // namespace
}  // namespace tandem
