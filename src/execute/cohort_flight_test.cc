#include "execute/cohort_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cpu_attention/decode_testing.h"
#include "device/flag_testing.h"
#include "execute/execute_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

constexpr int64_t kLayers = 2;
constexpr int64_t kMainRows = 3;
constexpr int64_t kRows = 64;

// One cohort of two rows, with products of its own.
class CohortFlightTest : public ::testing::Test {
 protected:
  CohortFlightTest()
      : flight_(CohortFlight::Create(bench_.parts(),
                                     {.max_rows = kRows, .max_cpu_rows = 16, .max_flight_rows = 16})
                    .value()),
        main_buffers_(
            RowBuffers::Allocate(bench_.parts().device, *bench_.parts().decoder, kMainRows + kRows).value()) {
  }

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
    std::vector<OwnVisits> visits = flight_->PrepareVisits(input, main_buffers_, kMainRows);
    logits_stage.Upload(bench_.parts().compute_stream());
    for (int64_t boundary = kEntry; boundary < kLayers; ++boundary)
      flight_->VisitAt(boundary, input.plan, &visits);
    bench_.parts().lanes->Synchronize();
    std::vector<CohortOutcome> outcomes(input.plan.cohorts.size());
    CohortFlight::CollectVisits(input.plan, &visits, &outcomes);
    IterationResult result;
    flight_->Collect(input, &visits, outcomes, &result);
    return result;
  }

  testing::ExecuteBench bench_;
  std::unique_ptr<CohortFlight> flight_;
  RowBuffers main_buffers_;  // the first rows are the main sub-batch's
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

// Others have armed theirs before it, and are wanted before.
TEST_F(CohortFlightTest, ADroppedCohortIsNotWaitedForBehindOthers) {
  Run(Visits(kEntry, 1));
  while (flight_->OwesOutput()) std::this_thread::yield();
  IterationPlan plan;
  plan.main.spans = {testing::GpuDecode(9, 2)};
  plan.cohorts = {{.cohort = 5, .cursor = 0, .visits = {{0, 0}}, .rides = true}};
  CpuTierRows& rows = *flight_->RidersOf(plan)[0].cohort->cpu_rows;

  constexpr int kOthers = 40;
  std::atomic<int> num_done{0};
  testing::CallbackFlag done([&num_done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++num_done;
  });
  std::mt19937 random(1);
  std::vector<std::unique_ptr<DecodeBatch>> batches;
  std::vector<std::unique_ptr<DecodePlan>> plans;
  for (int i = 0; i < kOthers; ++i) {
    batches.push_back(std::make_unique<DecodeBatch>(DecodeCase{.contexts = {1}}, random));
    plans.push_back(std::make_unique<DecodePlan>(batches.back()->sequences(), batches.back()->shape(), 2));
    bench_.cpu_attention().Submit({.plan = plans.back().get(),
                                   .layer = batches.back()->layer(),
                                   .done = &done,
                                   .done_value = 1,
                                   .wanted_at = i,
                                   .period = 1'000});
  }
  rows.Submit(1, kOthers, 1'000);
  rows.ready()->Set(rows.ValueOf(1));
  EXPECT_TRUE(flight_->Drop(5, StallWatch(std::chrono::seconds(60))));
  EXPECT_LT(num_done.load(), kOthers / 2);
  bench_.cpu_attention().WaitIdle();
  EXPECT_EQ(num_done.load(), kOthers);
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

// Chunks of two prompts, the first of which has 40 tokens in the cpu tier already. Its blocks are 3 5 9.
constexpr int64_t kComputed = 40;

IterationInput ChunksInTransit(CohortId id, int64_t cursor, std::vector<Visit> visits) {
  IterationInput input;
  input.plan.cohorts.push_back({.cohort = id,
                                .rows = {testing::Chunk(1, kComputed, 30, true, Tier::kCpu),
                                         testing::Chunk(2, 0, 33, true, Tier::kCpu)},
                                .cursor = cursor,
                                .visits = std::move(visits)});
  const std::vector<RowSpan>& rows = input.plan.cohorts[0].rows;
  input.cohorts.push_back({testing::InputOf(rows[0], {3, 5, 9}), testing::InputOf(rows[1], {7, 2})});
  return input;
}

// The first tokens of sequence 1 alone, all layers at once.
IterationInput FirstChunk() {
  IterationInput input;
  input.plan.cohorts.push_back({.cohort = 1,
                                .rows = {testing::Chunk(1, 0, kComputed, false, Tier::kCpu)},
                                .visits = {{-1, -1}, {0, 0}, {1, 1}}});
  input.cohorts.push_back({testing::InputOf(input.plan.cohorts[0].rows[0], {3, 5})});
  return input;
}

TEST_F(CohortFlightTest, ChunksInTransitTakeOneIterationOrSeveralForTheSameTokens) {
  Run(FirstChunk());
  EXPECT_EQ(flight_->num_transit_blocks(), 0);
  const IterationResult whole = Run(ChunksInTransit(4, kEntry, {{-1, -1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(whole.cohorts[0].cursor, kEntry);
  EXPECT_EQ(whole.cohorts[0].num_visits, kLayers + 1);
  ASSERT_EQ(whole.sequences.size(), 2U);
  EXPECT_EQ(whole.sequences[0].num_computed, kComputed + 30);
  EXPECT_EQ(whole.sequences[1].num_computed, 33);

  // All cuts of the three visits, with the last boundary for each; between them others use the activations.
  for (unsigned cuts = 0; cuts < 4; ++cuts) {
    int64_t cursor = kEntry;
    IterationResult last;
    while (last.sequences.empty()) {
      std::vector<Visit> visits;
      int64_t layer = cursor;
      do {
        visits.push_back({static_cast<int64_t>(visits.size()) - 1, layer});
      } while (layer + 1 < kLayers && (cuts >> (++layer)) % 2 == 0);
      last = Run(ChunksInTransit(7, cursor, visits));
      cursor = last.cohorts[0].cursor;
      EXPECT_EQ(flight_->num_transit_blocks(), cursor == kEntry ? 0 : 3 + 2);
      if (cursor != kEntry) Run(Visits(kEntry, kLayers + 1));
    }
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(last.sequences[i].tokens.at(0).token, whole.sequences[i].tokens.at(0).token) << cuts;
  }
}

TEST_F(CohortFlightTest, ADroppedCohortInTransitLeavesItsPlaceToTheNextOne) {
  const StallWatch watch(std::chrono::milliseconds(1000));
  Run(FirstChunk());
  const IterationResult whole = Run(ChunksInTransit(4, kEntry, {{-1, -1}, {0, 0}, {1, 1}}));
  Run(ChunksInTransit(5, kEntry, {{-1, -1}, {0, 0}}));
  EXPECT_TRUE(flight_->Drop(6, watch));
  EXPECT_EQ(flight_->num_transit_blocks(), 5);
  EXPECT_TRUE(flight_->Drop(5, watch));
  EXPECT_EQ(flight_->num_transit_blocks(), 0);
  const IterationResult again = Run(ChunksInTransit(6, kEntry, {{-1, -1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(again.sequences[0].tokens.at(0).token, whole.sequences[0].tokens.at(0).token);
  // What fails with the others has computed nothing.
  Run(ChunksInTransit(7, kEntry, {{-1, -1}}));
  const std::vector<SequenceResult> failed = flight_->Abandon();
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_EQ(failed[0].num_computed, kComputed);
  EXPECT_TRUE(failed[0].failed);
  EXPECT_EQ(flight_->num_transit_blocks(), 0);
}

}  // namespace
}  // namespace tandem
