#include "planning/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "plan/plan_printer.h"
#include "plan/plan_testing.h"
#include "plan/plan_validator.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecode;
using ::testing::ElementsAre;
using testing::GpuDecode;
using testing::IdsOf;
using ::testing::IsEmpty;
using testing::kSmallTarget;
using testing::SmallMachine;
using testing::Stages;

class ChoiceTest : public ::testing::Test {
 protected:
  Schedule Chosen() const { return Choose(Stages(machine, target).findings()); }
  // Valid.
  IterationPlan Planned() const {
    const Stages stages(machine, target);
    IterationPlan plan = WritePlan(stages.findings(), Choose(stages.findings()));
    const ScheduleLimits& limits = machine.state.limits;
    const auto find = [&](SequenceId id) -> std::optional<PlannedSequence> {
      if (machine.state.waiting.Find(id) != machine.state.waiting.end())
        return PlannedSequence{.num_tokens = machine.state.waiting.Find(id)->num_tokens};
      for (const ScheduledSequence& each : machine.state.running) {
        if (each.id == id)
          return PlannedSequence{each.num_tokens, each.num_computed, machine.capacity.tier_of(id)};
      }
      return std::nullopt;
    };
    const Status valid = ValidatePlan(plan, {.num_layers = limits.num_layers,
                                             .max_rows = limits.max_num_batched_tokens,
                                             .max_rider_rows = limits.max_rider_rows,
                                             .in_flight = &machine.state.cohorts,
                                             .find_sequence = find});
    EXPECT_TRUE(valid.ok()) << valid.error().message << "\n" << PrintPlan(plan);
    return plan;
  }
  // Ten decodes of 10 tokens fill the gpu tier.
  void FillGpuTier() {
    machine.capacity.total = {10, 300};
    machine.Decode(Tier::kGpu, 10, 10);
  }

  SmallMachine machine;
  Target target = kSmallTarget;
};

TEST_F(ChoiceTest, NothingToDo) {
  EXPECT_EQ(Chosen().us, 0);
  EXPECT_TRUE(Planned().empty());
}

// 31 tokens in 420 us against 11 in 220 us and 10 in 220 us.
TEST_F(ChoiceTest, TheMostWorkAMicrosecond) {
  FillGpuTier();
  machine.Decode(Tier::kCpu, 10, 25);
  const IterationPlan plan = Planned();
  EXPECT_EQ(plan.strategy, "tested");
  EXPECT_EQ(plan.main.spans.size(), 10U + 11U);
  EXPECT_EQ(plan.main.spans.front(), GpuDecode(1, 9));
  EXPECT_EQ(plan.main.spans.back(), CpuDecode(31, 9));
  ASSERT_EQ(plan.cohorts.size(), 1U);
  EXPECT_THAT(IdsOf(plan.cohorts[0].rows), ElementsAre(11, 12, 13, 14, 15, 16, 17, 18, 19, 20));
  EXPECT_FALSE(plan.cohorts[0].rides);
  machine.costs.cpu_us = 10e3;
  EXPECT_EQ(Planned().strategy, "gpu-only");
  EXPECT_EQ(Planned().main.spans.size(), 10U);
}

// 420 us do more work a microsecond than 220 us, but are too long, or longer where both are too long.
TEST_F(ChoiceTest, TheLimitOfAnIterationIsKeptFirst) {
  FillGpuTier();
  machine.Decode(Tier::kCpu, 10, 25);
  for (const double limit_us : {300.0, 100.0}) {
    target.max_iteration_us = limit_us;
    const Schedule schedule = Chosen();
    EXPECT_DOUBLE_EQ(schedule.us, 220);
    EXPECT_EQ(schedule.load.main_cpu_rows, 1);
  }
  machine.tuning.about_the_same_time = 2;
  EXPECT_DOUBLE_EQ(Chosen().us, 420) << "where neither is much longer, work counts";
  target.max_iteration_us = 300;
  EXPECT_DOUBLE_EQ(Chosen().us, 220);
}

// From 100 rows on a row takes as long as any other.
TEST_F(ChoiceTest, OfEqualsTheOneWithMorePrefill) {
  machine.Wait(180);
  EXPECT_EQ(Chosen().prefill_tokens, 180);
  EXPECT_THAT(Planned().main.spans, ElementsAre(Chunk(1, 0, 180, true)));
}

// A row takes 1 us from the eleventh on. All 190 tokens would do the most work a microsecond: 400 us in
// 420 us. Of them 10 are used up by the decodes, 8.3 come with the prompt: with the rest at half its worth
// those come first.
TEST_F(ChoiceTest, BetweenBudgetsPrefillCountsAsItIsWanted) {
  machine.tuning.ample_room = 1;  // all prompts are dealt out
  machine.Decode(Tier::kGpu, 10, 10);
  machine.Wait(190);
  machine.costs.linear_us = 10;
  target.point = {.prefilled_token_us = 2, .decoded_token_us = 2};
  EXPECT_EQ(Chosen().prefill_tokens, 18);
  machine.tuning.wanted_prefill_worth = 1;
  machine.tuning.further_prefill_worth = 1;
  EXPECT_EQ(Chosen().prefill_tokens, 190);
}

// The cpu tier holds more than it is to: no token of its prompt is wanted. But who is begun goes on, and what
// is there of it is copied in for one token or for many: 400 + n us a layer, in which n tokens take 2 n, and
// the decodes 30.
TEST_F(ChoiceTest, AChunkIsWorthTheCopiesOfWhatIsBeforeIt) {
  FillGpuTier();
  machine.Begin(Tier::kCpu, 900, 400);
  machine.state.limits.max_transit_tokens = 1000;
  machine.state.limits.max_num_batched_tokens = 1000;
  machine.state.prompt_tokens_per_output = 0;
  machine.tuning.transit_stretch = 100;  // in one iteration
  machine.costs.linear_us = 20;
  machine.costs.linear_token_us = 2;
  target.point.cpu_rows = 0;
  EXPECT_EQ(Chosen().prefill_tokens, 1);
  machine.costs.swap_ns = 1000;
  EXPECT_EQ(Chosen().prefill_tokens, 390);
}

// Beside nothing of the GPU's nobody rides: the cohort makes the visits that are left.
TEST_F(ChoiceTest, WithoutWorkOfTheGpuAllRowsRunAlone) {
  machine.capacity.total = {0, 100};
  machine.state.limits.max_rider_rows = 64;
  machine.Decode(Tier::kCpu, 10, 6);
  machine.PutInFlight(4, 0, {1, 2});
  target.rides = true;
  const IterationPlan plan = Planned();
  ASSERT_FALSE(plan.cohorts.empty());
  const CohortStep& own = plan.cohorts.back();
  EXPECT_EQ(own.cohort, 4U);
  EXPECT_FALSE(own.rides);
  EXPECT_THAT(own.visits, ElementsAre(Visit{0, 0}, Visit{1, 1}));
  EXPECT_EQ(NumRowsOf(plan.main.spans) + (plan.cohorts.size() > 1 ? NumRowsOf(plan.cohorts[0].rows) : 0), 4);
}

TEST_F(ChoiceTest, RowsRideBesideWhatTheGpuDoes) {
  FillGpuTier();
  machine.state.limits.max_rider_rows = 64;
  machine.Decode(Tier::kCpu, 10, 24);
  machine.PutInFlight(4, 1, {11, 12});
  target.rides = true;
  machine.aims.overlap = OverlapChoice::kBetter;
  const IterationPlan plan = Planned();
  EXPECT_EQ(plan.strategy, "async");
  ASSERT_EQ(plan.cohorts.size(), 2U);
  for (const CohortStep& step : plan.cohorts) EXPECT_TRUE(step.rides);
  EXPECT_THAT(plan.cohorts[0].visits, ElementsAre(Visit{1, 1}));
  EXPECT_EQ(plan.cohorts[1].cursor, kEntry);
  target.rides = false;
  EXPECT_EQ(Planned().strategy, "asymmetric");
}

TEST_F(ChoiceTest, SwapsAndPreemptionsAreInThePlan) {
  machine.capacity.total = {2, 2};
  machine.Decode(Tier::kGpu, 11);
  machine.Decode(Tier::kGpu, 10);
  IterationPlan plan = Planned();
  EXPECT_THAT(plan.moves, ElementsAre(Move{2, Tier::kCpu}));
  machine.capacity.total = {2, 0};
  plan = Planned();
  EXPECT_THAT(plan.preempted, ElementsAre(Preemption{2, PreemptionReason::kGpuTierFull}));
  EXPECT_THAT(plan.main.spans, ElementsAre(GpuDecode(1, 10)));
  EXPECT_THAT(plan.moves, IsEmpty());
}

TEST_F(ChoiceTest, PrefillOfTheCpuTierUsesItToo) {
  machine.capacity.total = {0, 100};
  machine.Wait(50);
  EXPECT_EQ(Planned().strategy, "tested");
  EXPECT_THAT(Planned().main.spans, ElementsAre(Chunk(1, 0, 50, true, Tier::kCpu)));
  machine.capacity.total = {100, 0};
  EXPECT_EQ(Planned().strategy, "gpu-only");
  machine.aims.cut = CpuRowsCut::kOneBatch;
  EXPECT_EQ(Planned().strategy, "tested") << "which has not chosen";
}

// Half of the gpu tier is kept for who begins alike; the other half decodes.
TEST_F(ChoiceTest, WhatWouldBeLostIsCopiedDownAsFarAsItHides) {
  machine.capacity.total = {100, 300};
  machine.costs.swap_ns = 100;  // a block of 10 tokens: 1 us a layer
  machine.Decode(Tier::kGpu, 10, 50);
  EXPECT_EQ(Planned().copy_down, CopyDown());
  machine.capacity.unused = 30;
  EXPECT_EQ(Planned().copy_down, CopyDown()) << "20 can be given up without loss";
  machine.capacity.unused = 45;
  machine.tuning.copied_down_of_tier = 0.4;
  const CopyDown few = Planned().copy_down;
  EXPECT_EQ(few.margin, 40);
  EXPECT_EQ(few.max_blocks, 40) << "half a layer of 150 us hides 75";
  machine.costs.swap_ns = 1000;
  EXPECT_EQ(Planned().copy_down.max_blocks, 7);
  EXPECT_EQ(Planned().copy_down.one_in, 16) << "nobody has begun alike yet";
  machine.state.cached_share = 0.1;
  EXPECT_EQ(Planned().copy_down.one_in, 1);
  machine.state.mean_context = 200;
  EXPECT_EQ(Planned().copy_down.margin, 80) << "four requests";
  machine.state.cpu_tier_usable = false;
  EXPECT_EQ(Planned().copy_down, CopyDown());
  machine.state.cpu_tier_usable = true;
  machine.capacity.total[1] = 0;
  EXPECT_EQ(Planned().copy_down, CopyDown());
}

}  // namespace
}  // namespace tandem
