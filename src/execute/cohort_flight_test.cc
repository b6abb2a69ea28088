#include "execute/cohort_flight.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "execute/execute_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

constexpr int64_t kLayers = 2;

// One cohort of two rows, with products of its own.
class CohortFlightTest : public ::testing::Test {
 protected:
  CohortFlightTest()
      : flight_(
            CohortFlight::Create(bench_.parts(), {.max_rows = 16, .max_cpu_rows = 16, .max_flight_rows = 16})
                .value()) {}

  ~CohortFlightTest() override {
    flight_->Abort();
    bench_.cpu_attention().WaitIdle();
  }

  // Visits of the next num_visits layers, all of them at the first boundaries.
  static IterationInput Visits(int64_t cursor, int64_t num_visits) {
    IterationInput input;
    CohortStep& step = input.plan.cohorts.emplace_back(
        CohortStep{.cohort = 5, .rows = testing::CpuDecodes({{1, 3}, {2, 33}}), .cursor = cursor});
    for (int64_t i = 0; i < num_visits; ++i) step.visits.push_back({kEntry + i, cursor + i});
    input.cohorts.push_back({testing::InputOf(step.rows[0], {4}), testing::InputOf(step.rows[1], {7, 2})});
    return input;
  }

  // As an executor does.
  IterationResult Run(IterationInput input) {
    EXPECT_TRUE(flight_->Enter(&input).ok());
    bench_.parts().lanes->Begin();
    LogitsStage& logits_stage = *bench_.parts().logits_stage;
    logits_stage.BeginIteration(nullptr);
    std::vector<OwnVisits> visits = flight_->PrepareVisits(input);
    logits_stage.Upload(bench_.parts().compute_stream());
    for (int64_t boundary = kEntry; boundary < kLayers; ++boundary)
      flight_->VisitAt(boundary, input.plan, &visits);
    bench_.parts().lanes->Synchronize();
    std::vector<CohortOutcome> outcomes(input.plan.cohorts.size());
    CohortFlight::CollectVisits(input.plan, &visits, &outcomes);
    IterationResult result;
    flight_->Collect(input.plan, outcomes, &result);
    return result;
  }

  testing::ExecuteBench bench_;
  std::unique_ptr<CohortFlight> flight_;
};

TEST_F(CohortFlightTest, TheSameTokenInOneIterationAndInSeveral) {
  const IterationResult whole = Run(Visits(kEntry, kLayers + 1));
  ASSERT_EQ(whole.cohorts.size(), 1U);
  EXPECT_EQ(whole.cohorts[0].cursor, kEntry);
  EXPECT_EQ(whole.cohorts[0].num_visits, kLayers + 1);
  ASSERT_EQ(whole.sequences.size(), 2U);
  EXPECT_EQ(whole.sequences[1].sequence, 2U);
  EXPECT_EQ(whole.sequences[1].num_computed, 34);
  ASSERT_EQ(whole.sequences[1].tokens.size(), 1U);

  for (int64_t cursor = kEntry; cursor < kLayers; ++cursor) {
    const IterationResult part = Run(Visits(cursor, 1));
    EXPECT_EQ(part.cohorts[0].num_visits, 1);
    const bool ends = cursor + 1 == kLayers;
    EXPECT_EQ(part.cohorts[0].cursor, ends ? kEntry : cursor + 1);
    ASSERT_EQ(part.sequences.size(), ends ? 2U : 0U);
    for (size_t i = 0; i < part.sequences.size(); ++i)
      EXPECT_EQ(part.sequences[i].tokens[0].token, whole.sequences[i].tokens[0].token);
  }
}

TEST_F(CohortFlightTest, DroppedCohortsEnterAgain) {
  const StallWatch watch(std::chrono::seconds(60));
  EXPECT_TRUE(flight_->Drop(5, watch));  // unknown
  Run(Visits(kEntry, 2));
  EXPECT_TRUE(flight_->Drop(5, watch));
  EXPECT_FALSE(flight_->OwesOutput());
  EXPECT_EQ(Run(Visits(kEntry, kLayers + 1)).sequences.size(), 2U);
}

TEST_F(CohortFlightTest, AbandonedCohortsComeBackToThePool) {
  for (int round = 0; round < 3; ++round) {
    Run(Visits(kEntry, 2));
    flight_->Abort();
    const std::vector<SequenceResult> failed = flight_->Abandon();
    ASSERT_EQ(failed.size(), 2U);
    EXPECT_TRUE(failed[0].failed);
    EXPECT_EQ(failed[1].num_computed, 33);
    EXPECT_FALSE(flight_->OwesOutput());
    while (!bench_.cpu_attention().idle()) std::this_thread::yield();
    flight_->Restore();
  }
  EXPECT_EQ(Run(Visits(kEntry, kLayers + 1)).sequences.size(), 2U);
}

TEST_F(CohortFlightTest, RidersAreThoseOfThePlanThatRide) {
  Run(Visits(kEntry, 1));
  IterationPlan plan;
  plan.main.spans = {testing::GpuDecode(9, 2)};
  plan.cohorts = {{.cohort = 8},
                  {.cohort = 5,
                   .rows = testing::CpuDecodes({{1, 3}, {2, 33}}),
                   .cursor = 0,
                   .visits = {{0, 0}},
                   .rides = true}};
  const std::vector<Rider> riders = flight_->RidersOf(plan);
  ASSERT_EQ(riders.size(), 1U);
  EXPECT_EQ(riders[0].step, 1U);
  EXPECT_EQ(riders[0].cohort->cursor, 0);
}

using CohortFlightDeathTest = CohortFlightTest;

TEST_F(CohortFlightDeathTest, PlansThatKnowBetterAbort) {
  Run(Visits(kEntry, 2));
  IterationInput behind = Visits(0, 1);
  EXPECT_DEATH(static_cast<void>(flight_->Enter(&behind)), "cohort 5 is at layer 1, the plan says 0");
  IterationInput unknown = Visits(0, 1);
  unknown.plan.cohorts[0].cohort = 6;
  EXPECT_DEATH(static_cast<void>(flight_->Enter(&unknown)), "cohort 6 is unknown at layer 0");
}

}  // namespace
}  // namespace tandem
