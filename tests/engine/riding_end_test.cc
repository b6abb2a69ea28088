// How cohorts that ride come to an end before their token does: dropped, with the executor, or because CPU
// attention stalls. Their rows may enter again, and give the same tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/executor_fixture.h"
#include "engine/held_workers.h"
#include "engine/riding_bench.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

class RidingEndTest : public RidingBench {};

TEST_P(RidingEndTest, DroppedInEachState) {
  MoveToCpu({1, 3});
  const auto ride = [&](int num_iterations) {
    for (int i = 0; i < num_iterations; ++i) {
      IterationPlan plan;
      plan.main.spans = NextRows({0});
      plan.cohorts.push_back(Ride(1, {1, 3}));
      Run(plan);
    }
  };
  // Attention of the first layer is under way or done.
  ride(1);
  EXPECT_TRUE(harness_.DropCohort(1));
  EXPECT_TRUE(harness_.DropCohort(1));
  // At any layer, its attention armed or not, and the number used again at once.
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int i = 0; harness_.InFlight(1) == nullptr || harness_.InFlight(1)->cursor < layer; ++i) {
      ASSERT_LT(i, kMostIterations);
      ride(1);
    }
    IterationPlan plan;
    plan.dropped = {1};
    plan.main.spans = NextRows({0});
    plan.cohorts.push_back({.cohort = 1,
                            .rows = NextRows({1, 3}, Tier::kCpu),
                            .cursor = kEntry,
                            .visits = {{kEntry, kEntry}},
                            .rides = true});
    Run(plan);
  }
  EXPECT_TRUE(harness_.DropCohort(1));
  // The next layer's attention is submitted, and nobody will ever arm it.
  {
    const HeldWorkers held(harness_.executor().cpu_attention());
    ride(3);
    EXPECT_EQ(harness_.InFlight(1)->cursor, 0);
  }
  EXPECT_TRUE(harness_.DropCohort(1));
  // Visits of its own.
  IterationPlan visits;
  visits.cohorts.push_back(Visits(1, {1, 3}, 2));
  Run(visits);
  EXPECT_TRUE(harness_.DropCohort(1));
  FinishRiding({1, 3}, {0, 2, 4, 5});
}

// What is left when the executor goes.
TEST_P(RidingEndTest, EndsWithCohortsInFlight) {
  MoveToCpu({1, 3});
  const HeldWorkers held(harness_.executor().cpu_attention());
  for (int i = 0; i < 2; ++i) {
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    plan.cohorts = {Ride(1, {1}), Ride(2, {3})};
    Run(plan);
  }
  EXPECT_EQ(harness_.InFlight(1)->cursor, 0);
}

class RidingStallTest : public RidingBench {
 protected:
  RidingStallTest() : RidingBench({.stall_timeout = std::chrono::milliseconds(400)}) {}

  void AwaitCpuTier() {
    while (!harness_.executor().CpuTierUsable()) std::this_thread::yield();
  }
};

// No stream waits for them, so the device goes on and on: the cohorts fail all the same, parked ones too.
TEST_P(RidingStallTest, FailsRidersAndRecovers) {
  MoveToCpu({1, 3, 5});
  for (int round = 0; round < 2; ++round) {
    auto held = std::make_unique<HeldWorkers>(harness_.executor().cpu_attention());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    IterationResult result;
    int num_iterations = 0;
    for (; !result.stalled; ++num_iterations) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      IterationPlan plan;
      // The context of the same rows over and over, so that there is no end of them.
      const SequenceId id = 100 + static_cast<SequenceId>(num_iterations);
      plan.main.spans.push_back(testing::Chunk(id, 0, 200, true));
      harness_.AddRequest(id, std::vector<int32_t>(200, 7));
      plan.cohorts.push_back(Ride(1, {1, 3}));
      if (num_iterations == 0) plan.cohorts.push_back(Ride(2, {5}));
      result = Run(plan);
      EXPECT_FALSE(result.sequences[0].failed);
      harness_.books().Release(id);
    }
    EXPECT_GT(num_iterations, 1);
    std::vector<SequenceId> failed;
    for (const SequenceResult& sequence : result.sequences) {
      if (sequence.failed) failed.push_back(sequence.sequence);
    }
    std::sort(failed.begin(), failed.end());
    EXPECT_EQ(failed, (std::vector<SequenceId>{1, 3, 5}));
    EXPECT_FALSE(harness_.executor().CpuTierUsable());
    EXPECT_EQ(harness_.InFlight(1), nullptr);
    IterationPlan on_gpu;
    on_gpu.main.spans = NextRows({0});
    EXPECT_FALSE(Run(on_gpu).stalled);
    held.reset();
    AwaitCpuTier();
  }
  FinishRiding({1, 3, 5}, {0, 2, 4});
}

TEST_P(RidingStallTest, DropDoesNotWaitForever) {
  MoveToCpu({1, 3});
  auto held = std::make_unique<HeldWorkers>(harness_.executor().cpu_attention());
  for (int i = 0; i < 2; ++i) {
    IterationPlan plan;
    plan.main.spans = NextRows({0});
    plan.cohorts = {Ride(1, {1}), Ride(2, {3})};
    Run(plan);
  }
  EXPECT_FALSE(harness_.DropCohort(1));
  EXPECT_FALSE(harness_.executor().CpuTierUsable());
  EXPECT_TRUE(harness_.DropCohort(2));  // forgotten already
  IterationPlan on_gpu;
  on_gpu.main.spans = NextRows({0});
  EXPECT_FALSE(Run(on_gpu).stalled);
  held.reset();
  AwaitCpuTier();
  FinishRiding({1, 3}, {0, 2, 4, 5});
}

INSTANTIATE_TEST_SUITE_P(Machines, RidingEndTest, kRidingMachines, NameOfMachine);
INSTANTIATE_TEST_SUITE_P(Machines, RidingStallTest, kRidingMachines, NameOfMachine);

}  // namespace
}  // namespace tandem
