#include "planning/riders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "plan/plan_testing.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::IdsOf;
using ::testing::IsEmpty;
using testing::SmallMachine;

// Seven layers, so a token is eight visits. At most eight rows ride at a boundary.
class RidersTest : public ::testing::Test {
 protected:
  RidersTest() {
    machine.costs.layers = 7;
    machine.state.limits.num_layers = 7;
    machine.state.limits.max_rider_rows = 8;
  }
  // That enter of the decodes that are not amid a token, in cohorts of three rows at least.
  std::vector<SequenceId> Entering() const {
    const TierBooks books = machine.books();
    CpuRows free;
    int64_t kv_tokens = 0;
    for (const RunningSequence& each : books.sequences()) {
      kv_tokens += each.num_tokens;
      if (!each.in_flight) free.Add(testing::CpuDecode(each.id, each.num_tokens - 1));
    }
    Riders riders(machine.state, machine.costs, books);
    riders.Enter(free, kv_tokens, machine.costs, machine.state.limits, 3);
    return IdsOf(riders.entering());
  }

  SmallMachine machine;
};

TEST_F(RidersTest, FurthestFirstAndWhoHasNoRoomAtItsBoundaryIsParked) {
  machine.Decode(Tier::kCpu, 10, 14);
  machine.PutInFlight(0, 2, {1, 2});
  machine.PutInFlight(1, 5, {3, 4, 5, 6, 7});
  machine.PutInFlight(2, 5, {8, 9, 10, 11});
  machine.PutInFlight(3, 5, {12, 13, 14});
  TierBooks books = machine.books();
  const Riders riders(machine.state, machine.costs, books);
  std::vector<CohortId> ids;
  std::vector<bool> parked;
  for (const Riders::Cohort& cohort : riders.cohorts()) {
    ids.push_back(cohort.in_flight->cohort);
    parked.push_back(cohort.parked);
  }
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(parked, ElementsAre(false, true, false, false));
  EXPECT_EQ(riders.num_rows(), 14);
  EXPECT_EQ(riders.usual_rows(), 5) << "eight and two rows at two boundaries";
  EXPECT_EQ(riders.FreshId(), 4U);
  books.DropCohort(1);
  EXPECT_EQ(Riders(machine.state, machine.costs, books).num_rows(), 9);
}

// 12 rows of 10 tokens in four cohorts: each reads 30 tokens.
TEST_F(RidersTest, ACohortTakesItsShareOfTheTokensThatAreRead) {
  machine.Decode(Tier::kCpu, 10, 12);
  EXPECT_THAT(Entering(), ElementsAre(1, 2, 3));
  machine.running(1).num_tokens = 190;  // of 300
  EXPECT_THAT(Entering(), ElementsAre(1));
}

TEST_F(RidersTest, CohortsAreStaggeredOverTheVisits) {
  machine.Decode(Tier::kCpu, 10, 12);
  machine.PutInFlight(0, 0, {1, 2, 3});
  EXPECT_THAT(Entering(), IsEmpty()) << "four cohorts are two visits apart";
  machine.state.cohorts[0].cursor = 1;
  EXPECT_THAT(Entering(), ElementsAre(4, 5, 6));
}

TEST_F(RidersTest, NoMoreCohortsAndRowsThanAllowed) {
  machine.Decode(Tier::kCpu, 10, 30);
  machine.state.limits.max_riding_cohorts = 1;
  EXPECT_EQ(Entering().size(), 8U);
  machine.state.limits.max_cohort_rows = 5;
  EXPECT_EQ(Entering().size(), 5U) << "should nobody pass by they make visits of their own";
  machine.state.limits.max_num_batched_tokens = 4;
  EXPECT_EQ(Entering().size(), 4U);
  machine.PutInFlight(0, 6, {1});
  EXPECT_THAT(Entering(), IsEmpty());
}

// 100 rows pass by: each that rides adds 1 us to the linear operations. Attention follows but the last visit.
TEST_F(RidersTest, VisitsAreAddedToALoad) {
  machine.costs.exchange_row_us = 2;
  machine.Decode(Tier::kCpu, 10, 9);
  machine.PutInFlight(0, 6, {1, 2});
  machine.PutInFlight(1, 3, {3, 4, 5});
  machine.PutInFlight(2, 3, {6});
  machine.PutInFlight(3, 2, {7});
  Riders riders(machine.state, machine.costs, machine.books());
  IterationLoad load = {.prefill_tokens = 100};
  riders.AddTo(3, 4, machine.costs, &load);  // the one at layer 2 makes visits of its own
  EXPECT_EQ(load.rider_rows, 6);
  EXPECT_EQ(load.rider_kv_tokens, 40);
  EXPECT_DOUBLE_EQ(load.rider_linear_us, 2 + 4);
  EXPECT_DOUBLE_EQ(load.rider_exchange_us, 2 * 4);
  EXPECT_DOUBLE_EQ(load.rider_cpu_us, 40 + 8);
  EXPECT_EQ(load.num_sampled, 2);
}

TEST_F(RidersTest, StepsOfThoseThatRideAndOfThoseThatMakeTheirOwnVisits) {
  machine.Decode(Tier::kCpu, 10, 5);
  machine.PutInFlight(3, 5, {1});
  machine.PutInFlight(7, 4, {2});
  Riders riders(machine.state, machine.costs, machine.books());
  CpuRows free;
  for (const SequenceId id : {3, 4, 5}) free.Add(testing::CpuDecode(id, 9));
  riders.Enter(free, 50, machine.costs, machine.state.limits, 2);
  IterationPlan plan;
  riders.WriteOwn(0, 1, 7, &plan);
  riders.WriteRiding(0, 1, &plan);
  ASSERT_EQ(plan.cohorts.size(), 3U);
  EXPECT_EQ(
      plan.cohorts[0],
      (CohortStep{.cohort = 3, .rows = {testing::CpuDecode(1, 9)}, .cursor = 5, .visits = {{5, 5}, {6, 6}}}));
  EXPECT_EQ(
      plan.cohorts[1],
      (CohortStep{
          .cohort = 7, .rows = {testing::CpuDecode(2, 9)}, .cursor = 4, .visits = {{4, 4}}, .rides = true}));
  EXPECT_EQ(plan.cohorts[2], (CohortStep{.cohort = 9,  // 8 is for a cohort that does not ride
                                         .rows = riders.entering(),
                                         .cursor = kEntry,
                                         .visits = {{kEntry, kEntry}},
                                         .rides = true}));
}

}  // namespace
}  // namespace tandem
