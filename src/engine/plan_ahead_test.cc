#include "engine/plan_ahead.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tandem {
namespace {

// Blocks of 32 tokens, all in the gpu tier.
class FixedCapacity : public CapacityView {
 public:
  int64_t block_size() const override { return 32; }
  int64_t total_blocks(Tier tier) const override { return tier == Tier::kGpu ? 100 : 0; }
  int64_t free_blocks(Tier tier) const override { return tier == Tier::kGpu ? 10 : 0; }
  int64_t held_blocks(SequenceId sequence) const override {
    return held.contains(sequence) ? held.at(sequence) : 0;
  }
  std::optional<Tier> tier_of(SequenceId sequence) const override {
    return held.contains(sequence) ? std::optional(Tier::kGpu) : std::nullopt;
  }
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
  running.main.gpu_decodes = {{1, 39}};
  running.main.prefills = {{2, 0, 64, false}};
  const StateAhead ahead = AdvanceState(now, running, 4, Never);
  EXPECT_EQ(ahead.state.running, (std::vector<ScheduledSequence>{{1, 41, 40}, {2, 100, 64}}));
  EXPECT_EQ(ahead.state.waiting, now.waiting);
  EXPECT_TRUE(ahead.ended.empty());
  // The last chunk of a prompt samples.
  running.main.prefills = {{2, 0, 100, true}};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[1], (ScheduledSequence{2, 101, 100}));
}

TEST(PlanAheadTest, CohortsCountOnceTheyPassTheLastLayer) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39}};
  IterationPlan running;
  running.cohorts.push_back({.cohort = 1, .rows = {{1, 39}}, .cursor = kEntry, .visits = {{0, kEntry}}});
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running, now.running);
  running.cohorts[0].visits = {{0, 3}};
  EXPECT_EQ(AdvanceState(now, running, 4, Never).state.running[0], (ScheduledSequence{1, 41, 40}));
}

TEST(PlanAheadTest, BlocksOfWhatEndsAreFreeAhead) {
  ScheduleState now;
  now.running = {{.id = 1, .num_tokens = 40, .num_computed = 39},
                 {.id = 2, .num_tokens = 9, .num_computed = 8}};
  IterationPlan running;
  running.main.gpu_decodes = {{1, 39}, {2, 8}};
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

TEST(PlanAheadTest, WhatEndedAgainstExpectationIsTakenOut) {
  IterationPlan plan;
  plan.preempted = {4};
  plan.main.gpu_decodes = {{1, 39}, {2, 8}};
  plan.main.prefills = {{3, 0, 5, true}};
  EXPECT_TRUE(DropEnded([](SequenceId id) { return id == 2 || id == 4; }, &plan));
  EXPECT_EQ(plan.main.gpu_decodes, (std::vector<DecodeRow>{{1, 39}}));
  EXPECT_EQ(plan.main.prefills.size(), 1U);
  EXPECT_TRUE(plan.preempted.empty());
  EXPECT_FALSE(DropEnded([](SequenceId /*id*/) { return true; }, &plan));  // nothing is left
}

TEST(PlanAheadTest, CohortThatLostARowVoidsThePlan) {
  IterationPlan plan;
  plan.main.gpu_decodes = {{1, 39}};
  plan.cohorts.push_back({.cohort = 1, .rows = {{2, 8}, {3, 8}}, .cursor = 1, .visits = {{1, 1}}});
  EXPECT_TRUE(DropEnded(Never, &plan));
  EXPECT_FALSE(DropEnded([](SequenceId id) { return id == 3; }, &plan));
}

}  // namespace
}  // namespace tandem
