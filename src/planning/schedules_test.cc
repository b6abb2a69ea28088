#include "planning/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "perf/time_model.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kSmallTarget;
using testing::SmallMachine;
using testing::Stages;

int64_t NumCpuRows(const Schedule& schedule) {
  return schedule.load.main_cpu_rows + schedule.load.cohort_rows;
}

// Ten decodes of 10 tokens fill the gpu tier: an iteration of them takes 220 us.
class SchedulesTest : public ::testing::Test {
 protected:
  SchedulesTest() {
    machine.capacity.total = {10, 300};
    machine.tuning.ample_room = 1;  // all prompts are dealt out
    machine.Decode(Tier::kGpu, 10, 10);
  }
  std::vector<int64_t> Budgets() const { return PrefillBudgets(Stages(machine, target).findings()); }
  std::vector<Schedule> HiddenRows(int64_t budget) const {
    std::vector<Schedule> taken;
    ProposeHiddenRows(Stages(machine, target).findings(), budget,
                      [&](const Schedule& schedule) { taken.push_back(schedule); });
    return taken;
  }

  SmallMachine machine;
  Target target = kSmallTarget;
};

// Wanted are 10 tokens for the decodes and 5.8 of the prompt; 92 rows more are as good as none (102 us).
TEST_F(SchedulesTest, BudgetsAreAscendingAndAroundWhatIsWanted) {
  EXPECT_THAT(Budgets(), ElementsAre(0)) << "there is nothing to prefill";
  machine.capacity.total = {100, 0};
  target.point.cpu_rows = 0;
  machine.Wait(150);
  EXPECT_THAT(Budgets(), ElementsAre(4, 8, 16, 32, 92, 150));
  machine.costs.tiles = {.last_tile_rows = 16};
  EXPECT_THAT(Budgets(), ElementsAre(6, 22, 38, 92, 150)) << "with ten decodes they fill tiles of 16 rows";
  machine.state.waiting = {{.id = 99, .num_tokens = 1}};
  EXPECT_THAT(Budgets(), ElementsAre(1));
}

// 100 tokens beside the decodes take 2 * (110 + 10) us.
TEST_F(SchedulesTest, BudgetsWithinTheLimitOfAnIteration) {
  machine.capacity.total = {100, 0};
  target.point.cpu_rows = 0;
  machine.Wait(150);
  target.max_iteration_us = 240;
  EXPECT_THAT(Budgets(), ElementsAre(0, 4, 8, 12, 16, 25, 32, 50, 92, 100, 150));
}

TEST_F(SchedulesTest, WithoutCpuRowsThereIsOneSchedule) {
  machine.capacity.total = {100, 0};
  machine.Wait(150);
  const std::vector<Schedule> taken = HiddenRows(140);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].prefill_tokens, 140);
  EXPECT_DOUBLE_EQ(taken[0].us, 2 * (150 + 10));
  EXPECT_DOUBLE_EQ(taken[0].work_us, 2 * 140 + 10 * 10);
  // A quarter more as far as it is wanted, the rest is worth half.
  const double wanted = Stages(machine, target).admission.wanted_prefill_tokens;
  EXPECT_DOUBLE_EQ(taken[0].wanted_work_us, 2 * (1.25 * wanted + 0.5 * (140 - wanted)) + 10 * 10);
}

TEST_F(SchedulesTest, AnIterationIsNoShorterThanTheCopiesOfWhatItPrefills) {
  machine.Wait(50);  // to the cpu tier
  machine.costs.swap_ns = 10e3;
  EXPECT_DOUBLE_EQ(HiddenRows(50).at(0).us, 2 * 50 * 10);
}

// One sub-batch hides one row behind T_ga0, two hide 10 and 11.
TEST_F(SchedulesTest, CpuRowsHideAndTheGpuAloneIsAlwaysProposed) {
  machine.Decode(Tier::kCpu, 10, 25);
  const std::vector<Schedule> taken = HiddenRows(0);
  ASSERT_EQ(taken.size(), 3U);
  EXPECT_TRUE(taken[0].fill.empty());
  EXPECT_DOUBLE_EQ(taken[0].us, 220);
  EXPECT_DOUBLE_EQ(taken[0].work_us, 10 * 10);
  EXPECT_EQ(taken[1].load.main_cpu_rows, 1);
  EXPECT_EQ(taken[1].load.cohort_rows, 0);
  EXPECT_DOUBLE_EQ(taken[1].us, 220);
  EXPECT_DOUBLE_EQ(taken[1].work_us, 10 * 11);
  EXPECT_EQ(taken[2].load.main_cpu_rows, 11);
  EXPECT_EQ(taken[2].load.cohort_rows, 10);
  EXPECT_DOUBLE_EQ(taken[2].us, 420);
  EXPECT_DOUBLE_EQ(taken[2].work_us, 10 * 31);
}

// 16 rows of the cohort hide behind 160 rows; nine in the main sub-batch and 10 of the gpu tier are there
// anyway.
TEST_F(SchedulesTest, PrefillIsReducedToWhatTheSameCpuRowsHideBehind) {
  machine.Decode(Tier::kCpu, 10, 25);
  machine.Wait(150);
  const std::vector<Schedule> taken = HiddenRows(150);
  ASSERT_EQ(taken.size(), 4U);
  EXPECT_EQ(taken[0].prefill_tokens, 0) << "the GPU alone admits nobody";
  EXPECT_EQ(taken[2].prefill_tokens, 150);
  EXPECT_EQ(taken[2].load.cohort_rows, 16);
  EXPECT_EQ(taken[2].load.main_cpu_rows, 9);
  EXPECT_EQ(taken[3].prefill_tokens, 160 - 10 - 9);
}

// One cpu row more would begin another tile of 16.
TEST_F(SchedulesTest, CpuRowsTakePrefillsPlaceInItsTiles) {
  machine.costs.tiles = {.last_tile_rows = 16};
  machine.Decode(Tier::kCpu, 10, 5);
  machine.Wait(50);
  const Schedule one_batch = HiddenRows(22).at(1);
  EXPECT_EQ(one_batch.load.main_cpu_rows, 1);
  EXPECT_EQ(one_batch.prefill_tokens, 21);
  EXPECT_EQ(one_batch.load.prefill_tokens, 21);
  EXPECT_EQ(one_batch.load.swapped_tokens, 21);
}

TEST_F(SchedulesTest, WhereTheOldestHasToWaitNobodyNewIsAdmitted) {
  machine.Decode(Tier::kCpu, 500);
  machine.Decode(Tier::kCpu, 10, 5);
  machine.Wait(50);
  int num_waiting = 0;
  int num_running = 0;
  for (const Schedule& schedule : HiddenRows(50)) {
    if (schedule.fill.has_oldest()) {
      ++num_running;
    } else {
      ++num_waiting;
      EXPECT_EQ(schedule.prefill_tokens, 0);
    }
  }
  EXPECT_EQ(num_waiting, 3);
  EXPECT_EQ(num_running, 2);
}

TEST_F(SchedulesTest, FewerRowsAreTheLastMeansToKeepToTheLimit) {
  machine.Decode(Tier::kCpu, 10, 25);
  target.max_iteration_us = 300;
  std::vector<int64_t> rows;
  for (const Schedule& schedule : HiddenRows(0)) rows.push_back(NumCpuRows(schedule));
  EXPECT_THAT(rows, ElementsAre(0, 1, 21, 10, 5, 2, 1));
}

// Six rows make one visit of three in 220 us: 6 / 3 tokens, if their attention takes no longer.
TEST_F(SchedulesTest, RidersDoTheirShareOfATokenIfTheCpuIsInTime) {
  machine.Decode(Tier::kCpu, 10, 6);
  machine.PutInFlight(0, 0, {11, 12, 13, 14, 15, 16});
  machine.state.limits.max_rider_rows = 64;
  target.rides = true;
  std::vector<Schedule> taken = HiddenRows(0);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].load.rider_rows, 6);
  EXPECT_DOUBLE_EQ(taken[0].us, 220);
  EXPECT_DOUBLE_EQ(taken[0].work_us, 10 * (10 + 2));
  machine.costs.cpu_us = 380;  // 440 us
  taken = HiddenRows(0);
  EXPECT_DOUBLE_EQ(taken.at(0).work_us, 10 * (10 + 1));
}

// The cohort has one visit of three behind it: 6 - 2 tokens are left. It hides in 60 of 100 us.
TEST_F(SchedulesTest, CohortsAmidATokenMakeTheirOwnVisitsBeforeRowsThatBeginOne) {
  machine.Decode(Tier::kCpu, 10, 25);
  machine.PutInFlight(0, 0, {11, 12, 13, 14, 15, 16});
  machine.state.limits.max_rider_rows = 64;
  std::vector<Schedule> taken = HiddenRows(0);
  ASSERT_EQ(taken.size(), 3U);
  EXPECT_EQ(taken[0].load.rider_rows, 6) << "beside the GPU alone it rides";
  EXPECT_EQ(taken[2].load.rider_rows, 0);
  EXPECT_EQ(taken[2].own_begin, 0U);
  EXPECT_EQ(taken[2].own_end, 1U);
  EXPECT_EQ(taken[2].load.cohort_rows, 10);
  EXPECT_EQ(taken[2].load.main_cpu_rows, 11);
  EXPECT_DOUBLE_EQ(taken[2].work_us, 10 * (10 + 4 + 4 + 11));
  // At the last layer no attention is left to hide.
  machine.state.cohorts[0].cursor = 1;
  taken = HiddenRows(0);
  EXPECT_EQ(taken[2].own_begin, taken[2].own_end);
  EXPECT_EQ(taken[2].load.rider_rows, 6);
}

// Without decodes in the gpu tier, all cpu rows run: ten in one sub-batch take 2 * (100 + 100) us.
class AllRowsTest : public ::testing::Test {
 protected:
  AllRowsTest() {
    machine.capacity.total = {0, 300};
    machine.Decode(Tier::kCpu, 10, 10);
  }
  std::vector<Schedule> AllRows(int64_t budget) const {
    std::vector<Schedule> taken;
    ProposeAllRows(Stages(machine, target).findings(), budget,
                   [&](const Schedule& schedule) { taken.push_back(schedule); });
    return taken;
  }
  std::vector<Schedule> RowsAlone() const {
    std::vector<Schedule> taken;
    ProposeRowsAlone(Stages(machine, target).findings(),
                     [&](const Schedule& schedule) { taken.push_back(schedule); });
    return taken;
  }
  static std::vector<int64_t> NumRows(const std::vector<Schedule>& schedules) {
    std::vector<int64_t> rows;
    rows.reserve(schedules.size());
    for (const Schedule& schedule : schedules) rows.push_back(NumCpuRows(schedule));
    return rows;
  }

  SmallMachine machine;
  Target target = kSmallTarget;
};

TEST_F(AllRowsTest, AreCutAsTheStrategyWants) {
  machine.Wait(50);
  machine.aims.cut = CpuRowsCut::kOneBatch;
  std::vector<Schedule> taken = AllRows(50);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].load.main_cpu_rows, 10);
  EXPECT_EQ(taken[0].prefill_tokens, 50);
  EXPECT_DOUBLE_EQ(taken[0].us, 400);
  EXPECT_THAT(AllRows(20), IsEmpty()) << "what fits is prefilled";
  machine.aims.cut = CpuRowsCut::kHalves;
  machine.running(1).num_tokens = 90;
  machine.running(1).num_computed = 89;
  taken = AllRows(50);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].load.cohort_rows, 1);
  EXPECT_EQ(taken[0].load.main_cpu_rows, 9);
  machine.aims.cut = CpuRowsCut::kLeastTime;
  taken = AllRows(20);
  ASSERT_EQ(taken.size(), 1U) << "one of several amounts of prefill";
  EXPECT_DOUBLE_EQ(taken[0].us, 400);
}

TEST_F(AllRowsTest, AreHalvedUntilTheLimitIsKept) {
  machine.aims.cut = CpuRowsCut::kOneBatch;
  target.max_iteration_us = 300;  // of five rows
  EXPECT_THAT(NumRows(AllRows(0)), ElementsAre(10, 5));
  target.max_iteration_us = 0;
  EXPECT_THAT(NumRows(AllRows(0)), ElementsAre(10));
}

TEST_F(AllRowsTest, AloneTheyHideOneAnotherOrRunAsOne) {
  const std::vector<Schedule> taken = RowsAlone();
  ASSERT_EQ(taken.size(), 2U);
  for (const Schedule& schedule : taken) {
    EXPECT_TRUE(schedule.alone);
    EXPECT_EQ(NumCpuRows(schedule), 10);
    EXPECT_DOUBLE_EQ(schedule.us, 400);
    EXPECT_DOUBLE_EQ(schedule.work_us, 10 * 10);
  }
  EXPECT_EQ(taken[0].load.cohort_rows, 0);
  EXPECT_EQ(taken[1].load.cohort_rows, 5);
  target.max_iteration_us = 300;
  EXPECT_THAT(NumRows(RowsAlone()), ElementsAre(10, 10, 5, 5));
  machine.aims.cut = CpuRowsCut::kHalves;
  EXPECT_THAT(RowsAlone(), IsEmpty()) << "of no use to those that run all rows anyway";
}

// Of three visits two are left: 6 * 2 / 3 tokens.
TEST_F(AllRowsTest, AloneCohortsAmidATokenMakeTheirVisits) {
  machine.PutInFlight(0, 0, {1, 2, 3, 4, 5, 6});
  std::vector<Schedule> taken = RowsAlone();
  ASSERT_EQ(taken.size(), 2U);
  for (const Schedule& schedule : taken) {
    EXPECT_EQ(schedule.own_end, 1U);
    EXPECT_EQ(NumCpuRows(schedule), 10);
    EXPECT_DOUBLE_EQ(schedule.work_us, 10 * (4 + 4));
  }
  machine.PutInFlight(1, 0, {7, 8, 9, 10});
  taken = RowsAlone();
  ASSERT_EQ(taken.size(), 1U) << "nobody else is there";
  EXPECT_EQ(taken[0].own_end, 2U);
  // Nothing hides their attention: that of 10 rows of 10 tokens on two of three visits is 67 tokens a layer.
  EXPECT_DOUBLE_EQ(taken[0].us, 2 * (67 + 100));
}

}  // namespace
}  // namespace tandem
