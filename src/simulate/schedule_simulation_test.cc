// The simulation of cohorts that are in flight, by plans made by hand.

#include "simulate/schedule_simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "perf/analytic_costs.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;

constexpr int64_t kLayers = 3;

// An iteration takes 400 us: 100 us from each of the four boundaries to the next. CPU attention
// takes a microsecond a token of context.
AnalyticCosts Costs() {
  AnalyticCosts costs;
  costs.layers = kLayers;
  costs.linear_us = 100;
  costs.cpu_kv_ns = 1000;
  costs.outside_us = 100;
  return costs;
}

CohortStep Ride(CohortId id, std::vector<RowSpan> rows, int64_t cursor) {
  return {
      .cohort = id, .rows = std::move(rows), .cursor = cursor, .visits = {{cursor, cursor}}, .rides = true};
}

class RidingSimulationTest : public ::testing::Test {
 protected:
  // Sequence 1 decodes in the gpu tier for long; 2, 3, ... of context_len tokens in the cpu tier.
  explicit RidingSimulationTest(const std::vector<int64_t>& context_lens = {50, 50, 50}) {
    EXPECT_TRUE(simulation_.AddRunning(1, Tier::kGpu, 10, 9, 1000));
    SequenceId id = 1;
    for (const int64_t context_len : context_lens)
      EXPECT_TRUE(simulation_.AddRunning(++id, Tier::kCpu, context_len, context_len - 1, 1000));
  }

  std::string Apply(std::vector<CohortStep> cohorts, std::vector<CohortId> dropped = {}) {
    IterationPlan plan;
    plan.dropped = std::move(dropped);
    plan.main.spans = {GpuDecode(1, simulation_.state().running[0].num_computed)};
    plan.cohorts = std::move(cohorts);
    const Status status = simulation_.Apply(plan);
    return status.ok() ? "ok" : status.error().message;
  }

  int64_t TokensOf(SequenceId id) {
    for (const ScheduledSequence& each : simulation_.state().running) {
      if (each.id == id) return each.num_tokens;
    }
    return 0;
  }
  const std::vector<InFlightCohort>& in_flight() { return simulation_.state().cohorts; }
  const SimulationCounts& counts() { return simulation_.counts(); }

  AnalyticCosts costs_ = Costs();
  ScheduleSimulation simulation_{SimulatedBooks(4, 500, 500),
                                 {.max_num_seqs = 8,
                                  .max_num_batched_tokens = 16,
                                  .num_layers = kLayers,
                                  .max_cohort_rows = 2,
                                  .max_rider_rows = 2},
                                 &costs_};
};

TEST_F(RidingSimulationTest, ACohortMakesAVisitAnIteration) {
  const std::vector<RowSpan> rows = CpuDecodes({{2, 49}, {3, 49}});
  for (int64_t cursor = kEntry; cursor < kLayers; ++cursor) {
    EXPECT_EQ(TokensOf(2), 50);
    ASSERT_EQ(Apply({Ride(7, rows, cursor)}), "ok") << cursor;
    if (cursor + 1 < kLayers) {
      EXPECT_EQ(in_flight(), (std::vector<InFlightCohort>{{7, rows, cursor + 1}}));
    }
  }
  EXPECT_TRUE(in_flight().empty());
  EXPECT_EQ(TokensOf(2), 51);
  EXPECT_EQ(TokensOf(3), 51);
  EXPECT_EQ(TokensOf(4), 50);
  EXPECT_EQ(counts().rider_visits, 4);
  EXPECT_EQ(counts().rider_skips, 0);
  EXPECT_EQ(counts().rider_tokens, 2);
  EXPECT_DOUBLE_EQ(counts().us, 1600);
  EXPECT_DOUBLE_EQ(counts().cpu_us, 300);
}

TEST_F(RidingSimulationTest, TheNextTokenIsAnotherCohort) {
  ASSERT_EQ(Apply({Ride(7, CpuDecodes({{2, 49}}), kEntry)}), "ok");
  EXPECT_NE(Apply({Ride(7, CpuDecodes({{2, 49}}), kEntry)}), "ok");
  EXPECT_NE(Apply({Ride(7, CpuDecodes({{3, 49}}), 0)}), "ok");
  EXPECT_NE(Apply({Ride(8, CpuDecodes({{2, 49}}), kEntry)}), "ok");
  EXPECT_NE(Apply({Ride(8, CpuDecodes({{3, 49}}), 0)}), "ok");
}

TEST_F(RidingSimulationTest, OwnVisitsAmidAToken) {
  const std::vector<RowSpan> rows = CpuDecodes({{2, 49}});
  ASSERT_EQ(Apply({Ride(7, rows, kEntry)}), "ok");
  CohortStep own = {.cohort = 7, .rows = rows, .cursor = 0, .visits = {{0, 0}, {1, 1}}};
  ASSERT_EQ(Apply({own}), "ok");
  ASSERT_EQ(in_flight().size(), 1U);
  EXPECT_EQ(in_flight()[0].cursor, 2);
  EXPECT_EQ(TokensOf(2), 50);
  // Parked: an iteration that does not name it.
  ASSERT_EQ(Apply({}), "ok");
  own.cursor = 2;
  own.visits = {{2, 2}};
  ASSERT_EQ(Apply({own}), "ok");
  EXPECT_TRUE(in_flight().empty());
  EXPECT_EQ(TokensOf(2), 51);
  EXPECT_EQ(counts().rider_tokens, 0);
}

TEST_F(RidingSimulationTest, ADroppedCohortBeginsItsTokenAgain) {
  const std::vector<RowSpan> rows = CpuDecodes({{2, 49}});
  ASSERT_EQ(Apply({Ride(7, rows, kEntry)}), "ok");
  ASSERT_EQ(Apply({Ride(7, rows, 0)}), "ok");
  EXPECT_NE(Apply({}, {8}), "ok");
  ASSERT_EQ(Apply({Ride(7, rows, kEntry)}, {7}), "ok");
  ASSERT_EQ(in_flight().size(), 1U);
  EXPECT_EQ(in_flight()[0].cursor, 0);
  EXPECT_EQ(counts().dropped_cohorts, 1);
  // To be preempted or to decode elsewhere it has to be dropped.
  IterationPlan plan;
  plan.main.spans = rows;
  EXPECT_FALSE(simulation_.Apply(plan).ok());
  plan.dropped = {7};
  EXPECT_TRUE(simulation_.Apply(plan).ok());
  EXPECT_EQ(TokensOf(2), 51);
}

TEST_F(RidingSimulationTest, RowsAreLimited) {
  EXPECT_NE(Apply({Ride(7, CpuDecodes({{2, 49}, {3, 49}, {4, 49}}), kEntry)}).find("3 rows ride"),
            std::string::npos);
  EXPECT_NE(Apply({Ride(7, CpuDecodes({{2, 49}, {3, 49}}), kEntry), Ride(8, CpuDecodes({{4, 49}}), kEntry)})
                .find("3 rows ride"),
            std::string::npos);
  const std::vector<Visit> all = {{-1, -1}, {0, 0}, {1, 1}, {2, 2}};
  EXPECT_NE(Apply({{.cohort = 7, .rows = CpuDecodes({{2, 49}, {3, 49}, {4, 49}}), .visits = all}})
                .find("visits of their own"),
            std::string::npos);
  EXPECT_EQ(Apply({{.cohort = 7, .rows = CpuDecodes({{2, 49}, {3, 49}}), .visits = all},
                   Ride(8, CpuDecodes({{4, 49}}), kEntry)}),
            "ok");
}

TEST_F(RidingSimulationTest, AtRandomSomeSkipAndNoneIsLost) {
  simulation_.JoinAtRandom(0.5, 3);
  const int64_t tokens_before = TokensOf(2) + TokensOf(3) + TokensOf(4);
  for (CohortId id = 0; id < 50;) {
    std::vector<CohortStep> steps;
    std::vector<InFlightCohort> cohorts = in_flight();
    if (cohorts.empty()) {
      ++id;
      for (SequenceId sequence = 2; sequence < 5; ++sequence)
        cohorts.push_back({10 * id + static_cast<CohortId>(sequence),
                           {CpuDecode(sequence, TokensOf(sequence) - 1)},
                           kEntry});
      cohorts.pop_back();
    }
    steps.reserve(cohorts.size());
    for (const InFlightCohort& each : cohorts) steps.push_back(Ride(each.cohort, each.rows, each.cursor));
    ASSERT_EQ(Apply(steps), "ok");
  }
  EXPECT_GT(counts().rider_skips, 100);
  EXPECT_EQ(TokensOf(2) + TokensOf(3) + TokensOf(4), tokens_before + counts().rider_tokens);
  EXPECT_GE(counts().rider_visits, 2 * 49 * (kLayers + 1));
}

// Attention of 550 us is not done after an iteration and a boundary, but after two.
class SlowCpuTest : public RidingSimulationTest {
 protected:
  SlowCpuTest() : RidingSimulationTest({550, 50, 50}) {}
};

TEST_F(SlowCpuTest, WhoseAttentionIsNotDoneSkips) {
  const std::vector<RowSpan> rows = CpuDecodes({{2, 549}});
  ASSERT_EQ(Apply({Ride(7, rows, kEntry)}), "ok");
  ASSERT_EQ(Apply({Ride(7, rows, 0)}), "ok");
  EXPECT_EQ(in_flight()[0].cursor, 0);
  EXPECT_EQ(counts().rider_skips, 1);
  ASSERT_EQ(Apply({Ride(7, rows, 0)}), "ok");
  EXPECT_EQ(in_flight()[0].cursor, 1);
  // Parked, its attention goes on.
  ASSERT_EQ(Apply({}), "ok");
  ASSERT_EQ(Apply({Ride(7, rows, 1)}), "ok");
  EXPECT_EQ(in_flight()[0].cursor, 2);
}

TEST_F(SlowCpuTest, TasksThatCanEndInTimeGoFirst) {
  const std::vector<RowSpan> slow = CpuDecodes({{2, 549}});
  const std::vector<RowSpan> fast = CpuDecodes({{3, 49}});
  ASSERT_EQ(Apply({Ride(7, slow, kEntry), Ride(8, fast, kEntry)}), "ok");
  ASSERT_EQ(Apply({Ride(7, slow, 0), Ride(8, fast, 0)}), "ok");
  ASSERT_EQ(in_flight().size(), 2U);
  EXPECT_EQ(in_flight()[0].cursor, 0);
  EXPECT_EQ(in_flight()[1].cursor, 1);
  ASSERT_EQ(Apply({Ride(7, slow, 0), Ride(8, fast, 1)}), "ok");
  EXPECT_EQ(in_flight()[0].cursor, 1);
  EXPECT_EQ(in_flight()[1].cursor, 2);
}

TEST_F(SlowCpuTest, RowsThatAreWaitedForLeaveItLess) {
  // An iteration takes 550 us, of which 150 may be waited for by another row, and a boundary a quarter.
  costs_.gpu_kv_ns = 5000;
  ASSERT_TRUE(simulation_.AddRunning(5, Tier::kCpu, 600, 599, 1000));
  const std::vector<RowSpan> rows = CpuDecodes({{5, 599}});
  const auto skips = [&](bool another) {
    ScheduleSimulation simulation = simulation_;
    for (int64_t i = 0; i < 2; ++i) {
      IterationPlan plan;
      plan.main.spans = {GpuDecode(1, 9 + i)};
      if (another) plan.main.spans.push_back(CpuDecode(3, 49 + i));
      plan.cohorts = {Ride(7, rows, kEntry + i)};
      EXPECT_TRUE(simulation.Apply(plan).ok());
    }
    return simulation.counts().rider_skips;
  };
  EXPECT_EQ(skips(false), 0);
  EXPECT_EQ(skips(true), 1);
}

TEST_F(RidingSimulationTest, InFlightFromTheStart) {
  EXPECT_FALSE(simulation_.AddInFlight({3, CpuDecodes({{1, 9}}), 1}));   // in the gpu tier
  EXPECT_FALSE(simulation_.AddInFlight({3, CpuDecodes({{2, 48}}), 1}));  // computed already
  EXPECT_FALSE(simulation_.AddInFlight({3, CpuDecodes({{9, 48}}), 1}));  // unknown
  ASSERT_TRUE(simulation_.AddInFlight({3, CpuDecodes({{2, 49}}), 1}));
  EXPECT_FALSE(simulation_.AddInFlight({4, CpuDecodes({{2, 49}}), 1}));
  EXPECT_NE(Apply({Ride(3, CpuDecodes({{2, 49}}), 0)}), "ok");
  EXPECT_EQ(Apply({Ride(3, CpuDecodes({{2, 49}}), 1)}), "ok");
  EXPECT_EQ(in_flight()[0].cursor, 2);
}

}  // namespace
}  // namespace tandem
