// Cohorts that ride, in hand-made plans on the real executor: whoever rides when, and whatever goes on beside
// it, the tokens are those of decoding in the gpu tier.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/executor_fixture.h"
#include "engine/held_workers.h"
#include "engine/riding_bench.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

class RidingTest : public RidingBench {};

TEST_P(RidingTest, OneCohortThroughAllLayers) {
  MoveToCpu({1, 3, 5});
  FinishRiding({1, 3, 5}, {0, 2, 4});
}

// As many as there are visits to a token: one at each boundary, and all at the same.
TEST_P(RidingTest, SeveralCohorts) {
  MoveToCpu({1, 2, 3, 4, 5});
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    for (SequenceId id = 1; id < kNumSequences; ++id) {
      const auto cohort = static_cast<CohortId>(id);
      // First they come one after the other, later they leave out what lies between them.
      const bool staggered = harness_.request(id).output_tokens.size() < kNumTokens / 2;
      if (staggered && i < static_cast<int>(id)) continue;
      if (Unfinished(id) || harness_.InFlight(cohort) != nullptr) plan.cohorts.push_back(Ride(cohort, {id}));
    }
    Run(plan);
  }
  ExpectReferenceTokens();
}

// Prompts on their way to both tiers, cpu decodes that are waited for, and a cohort that visits every layer.
TEST_P(RidingTest, BesideEverythingElse) {
  MoveToCpu({1, 2, 3});
  for (const SequenceId id : {4, 5}) {
    harness_.books().Release(id);
    harness_.AddRequest(id, PromptOf(id));
  }
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    plan.main.spans.push_back(harness_.NextRow(2, Tier::kCpu));
    for (const auto& [id, tier] : {std::pair{SequenceId{4}, Tier::kCpu}, {SequenceId{5}, Tier::kGpu}}) {
      const Request& request = harness_.request(id);
      if (!request.output_tokens.empty()) {
        plan.main.spans.push_back(harness_.NextRow(id, tier));
        continue;
      }
      const int64_t start = request.num_computed_tokens;
      const int64_t num_tokens = std::min<int64_t>(7, request.num_tokens() - start);
      plan.main.spans.push_back(
          testing::Chunk(id, start, num_tokens, start + num_tokens == request.num_tokens(), tier));
    }
    plan.cohorts.push_back(Visits(8, {3}, kLayers + 1));
    plan.cohorts.push_back(Ride(7, {1}));
    Run(plan);
  }
  ExpectReferenceTokens();
}

TEST_P(RidingTest, SkipsVisitsWhileCpuAttentionIsBusy) {
  MoveToCpu({1, 3});
  {
    const HeldWorkers held(harness_.executor().cpu_attention());
    for (int i = 0; i < 6; ++i) {
      IterationPlan plan;
      plan.main.spans = NextRows({0, 2});
      plan.cohorts.push_back(Ride(1, {1, 3}));
      const IterationResult result = Run(plan);
      EXPECT_EQ(result.cohorts[0].num_visits, i == 0 ? 1 : 0);
      EXPECT_EQ(result.cohorts[0].cursor, 0);
      EXPECT_EQ(result.sequences.size(), 2U);
      EXPECT_FALSE(result.stalled);
    }
  }
  for (int i = 0; Unfinished(1); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows({0, 2, 4, 5});
    plan.cohorts.push_back(Ride(1, {1, 3}));
    Run(plan);
  }
  ExpectReferenceTokens();
}

// Every way of going on, at any layer; and whoever is not named stays where it is.
TEST_P(RidingTest, SwitchesAmidAToken) {
  MoveToCpu({1, 2, 3, 4, 5});
  std::mt19937 random(5);
  const std::vector<std::pair<CohortId, std::vector<SequenceId>>> cohorts = {
      {1, {1, 3}}, {2, {2, 5}}, {3, {4}}};
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    if (random() % 8 != 0) plan.main.spans = NextRows({0});
    for (const auto& [id, sequences] : cohorts) {
      switch (random() % 4) {
        case 0:  // rests
          break;
        case 1:
          plan.cohorts.push_back(Visits(id, sequences, 1 + static_cast<int64_t>(random() % kLayers)));
          break;
        default:
          if (!plan.main.empty()) plan.cohorts.push_back(Ride(id, sequences));
      }
    }
    if (!plan.empty()) Run(plan);
  }
  ExpectReferenceTokens();
}

// Attention of the next layer was submitted for a ride that was not made: the visit makes use of it.
TEST_P(RidingTest, VisitsAfterASkippedRide) {
  MoveToCpu({1, 3});
  for (int round = 0; round < 3; ++round) {
    auto held = std::make_unique<HeldWorkers>(harness_.executor().cpu_attention());
    for (int i = 0; i < 3; ++i) {
      IterationPlan plan;
      plan.main.spans = NextRows({0});
      plan.cohorts.push_back(Ride(1, {1, 3}));
      Run(plan);
    }
    EXPECT_EQ(harness_.InFlight(1)->cursor, 0);
    held.reset();
    IterationPlan plan;
    plan.cohorts.push_back(Visits(1, {1, 3}, round == 0 ? kLayers : 2));
    Run(plan);
    while (harness_.InFlight(1) != nullptr) {
      IterationPlan rest;
      rest.main.spans = NextRows({2});
      rest.cohorts.push_back(Ride(1, {1, 3}));
      Run(rest);
    }
  }
  FinishRiding({1, 3}, {0, 2, 4, 5});
}

class RidingGraphTest : public RidingBench {
 protected:
  RidingGraphTest() : RidingBench({.graph_batch_sizes = {1, 3, 4}, .graph_rider_rows = {2, 5}}) {}
};

// Whoever decodes and rides, replays serve it; what does not fit them is enqueued op by op between them.
TEST_P(RidingGraphTest, ReplaysServeEveryContent) {
  MoveToCpu({1, 3, 4, 5});
  std::mt19937 random(11);
  const std::vector<std::pair<CohortId, std::vector<SequenceId>>> cohorts = {{1, {1, 3}}, {2, {5}}, {3, {4}}};
  int num_replays_with_riders = 0;
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows(random() % 3 == 0 ? std::vector<SequenceId>{0, 2}
                                                 : std::vector<SequenceId>{random() % 2 * 2});
    for (const auto& [id, sequences] : cohorts) {
      if (random() % 8 != 0) plan.cohorts.push_back(Ride(id, sequences));
    }
    const bool visits = random() % 16 == 0;
    if (visits && !plan.cohorts.empty()) {
      plan.cohorts[0].rides = false;
    }
    const IterationResult result = Run(plan);
    EXPECT_EQ(result.as_graph, !visits || plan.cohorts.empty());
    if (result.as_graph && !plan.cohorts.empty()) ++num_replays_with_riders;
  }
  EXPECT_GT(num_replays_with_riders, 20);
  ExpectReferenceTokens();
}

TEST_P(RidingGraphTest, MoreRidersThanAnyGraphHas) {
  MoveToCpu({1, 2, 3, 4, 5});
  harness_.AddRequest(6, PromptOf(1));
  IterationPlan prompt;
  prompt.main.spans.push_back(testing::Chunk(6, 0, harness_.request(6).num_tokens(), true, Tier::kCpu));
  Run(prompt);
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    plan.cohorts.push_back(Ride(1, {1, 2, 3, 4, 5, 6}));
    EXPECT_FALSE(Run(plan).as_graph);
  }
  ExpectReferenceTokens();
}

class PaddedGraphTest : public RidingBench {
 protected:
  PaddedGraphTest() : RidingBench({.graph_batch_sizes = {1}, .graph_rider_rows = {2, 64}}) {}
};

// A large cohort would have its rows at every boundary of a graph.
TEST_P(PaddedGraphTest, ALargeCohortIsEnqueuedOpByOp) {
  MoveToCpu({1, 2, 3, 4, 5});
  for (int i = 0; AnyUnfinished(); ++i) {
    ASSERT_LT(i, kMostIterations);
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    plan.cohorts.push_back(Ride(1, {1, 2}));
    const bool large = i % 2 == 1;
    if (large) plan.cohorts.push_back(Ride(2, {3, 4, 5}));
    EXPECT_EQ(Run(plan).as_graph, !large);
  }
  ExpectReferenceTokens();
}

INSTANTIATE_TEST_SUITE_P(Machines, RidingTest, kRidingMachines, NameOfMachine);
INSTANTIATE_TEST_SUITE_P(Machines, RidingGraphTest, kRidingMachines, NameOfMachine);
INSTANTIATE_TEST_SUITE_P(Machines, PaddedGraphTest, kRidingMachines, NameOfMachine);

}  // namespace
}  // namespace tandem
