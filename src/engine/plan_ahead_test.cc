#include "engine/plan_ahead.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <unordered_set>
#include <vector>

#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::RowAt;

// Blocks of 32 tokens, all in the gpu tier.
class FixedCapacity : public CapacityView {
 public:
  int64_t block_size() const override { return 32; }
  int64_t total_blocks(Tier tier) const override { return tier == Tier::kGpu ? 100 : 0; }
  int64_t free_blocks(Tier tier) const override { return tier == Tier::kGpu ? 10 : 0; }
  std::optional<Holding> holding_of(SequenceId sequence) const override {
    if (!held.contains(sequence)) return std::nullopt;
    return Holding{Tier::kGpu, held.at(sequence)};
  }
  int64_t shared_tokens(SequenceId a, SequenceId b) const override { return held.contains(a + b) ? 32 : 0; }
  std::map<SequenceId, int64_t> held;
};

bool Never(SequenceId /*id*/) {
  return false;
}

TEST(PlanAheadTest, SequencesGrowAsThePlanSays) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39},
                 {.id = 2, .num_tokens = 100, .num_computed = 0}};
  now.waiting = {{.id = 3, .num_tokens = 5, .num_computed = 0}};
  IterationPlan running;
  running.main.spans = {Chunk(2, 0, 64, false), GpuDecode(1, 39)};
  const StateAhead ahead = AdvanceState(now, running, 4, Never);
  EXPECT_EQ(ahead.state.running, (std::vector<ScheduledSequence>{{1, 41, 40}, {2, 100, 64}}));
  EXPECT_EQ(ahead.state.waiting, now.waiting);
  EXPECT_TRUE(ahead.ended.empty());
  // The last chunk of a prompt samples.
  running.main.spans[0] = Chunk(2, 0, 100, true);
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[1], (ScheduledSequence{2, 101, 100}));
}

// Cancelled, or ended with the iteration before, while a row of it is under way.
TEST(PlanAheadTest, WhoIsGoneIsPassedOver) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39}};
  IterationPlan running;
  running.main.spans = {GpuDecode(2, 20), GpuDecode(1, 39)};
  const StateAhead ahead = AdvanceState(now, running, 4, [](SequenceId id) { return id == 2; });
  EXPECT_EQ(ahead.state.running, (std::vector<ScheduledSequence>{{1, 41, 40}}));
  EXPECT_TRUE(ahead.ended.empty());
}

// What is asked of a prompt is reported chunk by chunk.
TEST(PlanAheadTest, EchoGoesOnBehindTheChunkThatRuns) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 100, .num_computed = 0, .echo_from = 0}};
  IterationPlan running;
  running.main.spans = {RowSpan::Chunk(1, 0, 64, 0, Tier::kGpu)};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[0].echo_from, 64);
  running.main.spans = {RowSpan::Chunk(1, 0, 99, 0, Tier::kGpu)};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[0].echo_from, std::nullopt);
  // Computed again after a preemption: what was reported is not asked once more.
  now.running[0].echo_from = 80;
  running.main.spans = {RowSpan::Chunk(1, 0, 64, 80, Tier::kGpu)};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[0].echo_from, 80);
}

TEST(PlanAheadTest, CohortsCountOnceTheyPassTheLastLayer) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39}};
  IterationPlan running;
  running.cohorts.push_back(
      {.cohort = 1, .rows = CpuDecodes({{1, 39}}), .cursor = kEntry, .visits = {{0, kEntry}}});
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running, now.running);
  running.cohorts[0].visits = {{0, 3}};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[0], (ScheduledSequence{1, 41, 40}));
}

TEST(PlanAheadTest, BlocksOfWhatEndsAreFreeAhead) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39},
                 {.id = 2, .num_tokens = 9, .num_computed = 8}};
  IterationPlan running;
  running.main.spans = {GpuDecode(1, 39), GpuDecode(2, 8)};
  const StateAhead ahead = AdvanceState(now, running, 4, [](SequenceId id) { return id == 1; });
  ASSERT_EQ(ahead.state.running.size(), 1U);
  EXPECT_EQ(ahead.state.running[0].id, 2U);
  FixedCapacity capacity;
  capacity.held = {{1, 2}, {2, 1}};
  const CapacityAhead later(capacity, ahead.ended);
  EXPECT_EQ(later.free_blocks(Tier::kGpu), 12);
  EXPECT_EQ(later.free_blocks(Tier::kCpu), 0);
  EXPECT_EQ(later.held_blocks(1), 0);
  EXPECT_EQ(later.held_blocks(2), 1);
  EXPECT_FALSE(later.tier_of(1).has_value());
  EXPECT_EQ(later.tier_of(2), Tier::kGpu);
}

// Else a plan made ahead would price what the CPU reads once for several rows as if it read it for each.
TEST(PlanAheadTest, WhoSharesBlocksSharesThemAhead) {
  FixedCapacity capacity;
  capacity.held = {{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}};
  const std::unordered_set<SequenceId> ended = {1};
  const CapacityAhead later(capacity, ended);
  EXPECT_EQ(later.shared_tokens(2, 3), 32);
  EXPECT_EQ(later.shared_tokens(2, 4), 0);
  EXPECT_EQ(later.shared_tokens(1, 2), 0);
  EXPECT_EQ(later.shared_tokens(3, 1), 0);
}

TEST(PlanAheadTest, WhatEndedAgainstExpectationIsTakenOut) {
  IterationPlan plan;
  plan.preempted = {Preemption{4}};
  plan.attached = {{.sequence = 2, .tier = Tier::kCpu, .num_tokens = 8}};
  plan.moves = {{.sequence = 2, .to = Tier::kGpu}};
  plan.main.spans = {Chunk(3, 0, 5, true), GpuDecode(1, 39), GpuDecode(2, 8)};
  EXPECT_TRUE(DropEnded([](SequenceId id) { return id == 2 || id == 4; }, &plan));
  EXPECT_TRUE(plan.attached.empty());
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.main.spans, (std::vector<RowSpan>{Chunk(3, 0, 5, true), GpuDecode(1, 39)}));
  EXPECT_TRUE(plan.preempted.empty());
  EXPECT_FALSE(DropEnded([](SequenceId /*id*/) { return true; }, &plan));  // nothing is left
}

TEST(PlanAheadTest, ACohortGoesOnWithoutOneOfItsRows) {
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 39)};
  plan.cohorts = {{.cohort = 1, .rows = CpuDecodes({{2, 8}, {3, 8}}), .cursor = 1, .visits = {{1, 1}}},
                  {.cohort = 2, .rows = CpuDecodes({{4, 8}, {5, 8}}), .visits = {{kEntry, kEntry}}}};
  EXPECT_TRUE(DropEnded([](SequenceId id) { return id == 3 || id == 5; }, &plan));
  EXPECT_EQ(plan.cohorts[0].rows, CpuDecodes({{2, 8}, {3, 8}})) << "amid a token";
  EXPECT_EQ(plan.cohorts[1].rows, CpuDecodes({{4, 8}}));
}

CohortStep Ride(CohortId id, std::initializer_list<RowAt> rows, int64_t cursor) {
  return {
      .cohort = id, .rows = CpuDecodes(rows), .cursor = cursor, .visits = {{cursor, cursor}}, .rides = true};
}

TEST(PlanAheadTest, CohortsAreAssumedToMakeTheirVisits) {
  ScheduleState now;
  for (SequenceId id = 1; id <= 6; ++id)
    now.running.push_back({.id = id, .num_tokens = 9, .num_computed = 8});
  now.cohorts = {{1, CpuDecodes({{1, 8}}), 2},
                 {2, CpuDecodes({{2, 8}}), 3},
                 {3, CpuDecodes({{3, 8}}), 0},
                 {5, CpuDecodes({{5, 8}}), 1}};
  IterationPlan running;
  running.main.spans = {GpuDecode(6, 8)};
  running.cohorts = {Ride(1, {{1, 8}}, 2),
                     Ride(2, {{2, 8}}, 3),
                     Ride(4, {{4, 8}}, kEntry),
                     {.cohort = 5, .rows = CpuDecodes({{5, 8}}), .cursor = 1, .visits = {{1, 1}, {2, 2}}}};
  const StateAhead ahead = AdvanceState(now, running, 4, [](SequenceId id) { return id == 2; });
  // 3 is left where it is, 2 ended its token, and with it its sequence.
  EXPECT_EQ(ahead.state.cohorts, (std::vector<InFlightCohort>{{1, CpuDecodes({{1, 8}}), 3},
                                                              {3, CpuDecodes({{3, 8}}), 0},
                                                              {5, CpuDecodes({{5, 8}}), 3},
                                                              {4, CpuDecodes({{4, 8}}), 0}}));
  EXPECT_EQ(ahead.ended, (std::unordered_set<SequenceId>{2}));
  EXPECT_EQ(ahead.state.running.size(), 5U);
}

TEST(PlanAheadTest, NothingRidesWithoutAMainSubBatch) {
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 39)};
  plan.cohorts = {Ride(1, {{2, 8}}, 0)};
  EXPECT_TRUE(DropEnded(Never, &plan));
  EXPECT_FALSE(DropEnded([](SequenceId id) { return id == 1; }, &plan));
}

// Four layers. Cohorts 1, 2 and 3 rode at 0, 1 and 3 while this plan was made: 1 and 2 go on, 3 ended its
// token and its row enters with 4.
class FollowCohortsTest : public ::testing::Test {
 protected:
  FollowCohortsTest() {
    ran_.main.spans = {GpuDecode(9, 20)};
    ran_.cohorts = {Ride(1, {{1, 8}, {11, 8}}, 0), Ride(2, {{2, 8}}, 1), Ride(3, {{3, 8}}, 3)};
    plan_.main.spans = {GpuDecode(9, 21)};
    plan_.cohorts = {Ride(1, {{1, 8}, {11, 8}}, 1), Ride(2, {{2, 8}}, 2), Ride(4, {{3, 9}}, kEntry)};
    progress_ = {{1, 1, 1}, {2, 2, 1}, {3, kEntry, 1}};
  }

  bool Follow() { return FollowCohorts(ran_, progress_, 4, max_rider_rows_, &plan_); }

  IterationPlan ran_;
  IterationPlan plan_;
  std::vector<CohortProgress> progress_;
  int64_t max_rider_rows_ = 2;
};

TEST_F(FollowCohortsTest, APlanThatCameTrueStays) {
  const std::vector<CohortStep> cohorts = plan_.cohorts;
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts, cohorts);
}

TEST_F(FollowCohortsTest, ASkippedVisitIsMadeNow) {
  progress_[0] = {1, 0, 0};
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts, (std::vector<CohortStep>{Ride(1, {{1, 8}, {11, 8}}, 0), Ride(2, {{2, 8}}, 2),
                                                    Ride(4, {{3, 9}}, kEntry)}));
}

TEST_F(FollowCohortsTest, ATokenThatDidNotEndVoidsThePlan) {
  progress_[2] = {3, 3, 0};
  EXPECT_FALSE(Follow());
}

TEST_F(FollowCohortsTest, LateOnesGoFirstWhereThereIsNoRoomForAll) {
  // 2 comes back to boundary 1, where 1 takes all the room.
  progress_[1] = {2, 1, 0};
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts, (std::vector<CohortStep>{Ride(2, {{2, 8}}, 1), Ride(4, {{3, 9}}, kEntry)}));
}

TEST_F(FollowCohortsTest, WithRoomTheyRideTogether) {
  progress_[1] = {2, 1, 0};
  max_rider_rows_ = 3;
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts, (std::vector<CohortStep>{Ride(1, {{1, 8}, {11, 8}}, 1), Ride(2, {{2, 8}}, 1),
                                                    Ride(4, {{3, 9}}, kEntry)}));
}

TEST_F(FollowCohortsTest, VisitsOfItsOwnBeginALayerEarlier) {
  progress_[1] = {2, 1, 0};
  plan_.cohorts[1] = {.cohort = 2, .rows = CpuDecodes({{2, 8}}), .cursor = 2, .visits = {{2, 2}, {3, 3}}};
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts[1],
            (CohortStep{
                .cohort = 2, .rows = CpuDecodes({{2, 8}}), .cursor = 1, .visits = {{1, 1}, {2, 2}, {3, 3}}}));
  plan_.cohorts[1] = {.cohort = 2, .rows = CpuDecodes({{2, 8}}), .cursor = 2, .visits = {{-1, 2}, {0, 3}}};
  EXPECT_FALSE(Follow());
}

TEST_F(FollowCohortsTest, ParkedAndDroppedCohortsNeedNothing) {
  progress_[0] = {1, 0, 0};
  progress_[1] = {2, 1, 0};
  // 1 is left where it is; the name of 2 is used again.
  plan_.dropped = {2};
  plan_.cohorts = {Ride(2, {{2, 8}}, kEntry)};
  EXPECT_TRUE(Follow());
  EXPECT_EQ(plan_.cohorts, (std::vector<CohortStep>{Ride(2, {{2, 8}}, kEntry)}));
}

TEST_F(FollowCohortsTest, NothingLeftVoidsThePlan) {
  progress_[0] = {1, 0, 0};
  plan_.main = {};
  plan_.cohorts.resize(1);
  max_rider_rows_ = 1;
  EXPECT_FALSE(Follow());
}

}  // namespace
}  // namespace tandem
