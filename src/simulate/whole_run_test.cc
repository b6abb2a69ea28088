#include "simulate/whole_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "perf/analytic_costs.h"

namespace tandem {
namespace {

RunSetup SetupOf(std::string strategy, const AnalyticCosts& costs) {
  return {.strategy = std::move(strategy),
          .limits = {.max_num_seqs = 64,
                     .max_num_batched_tokens = 512,
                     .reserve_blocks = 1,
                     .num_layers = costs.layers,
                     .max_transit_tokens = 4096,
                     .max_cohort_rows = 64,
                     .max_rider_rows = 64},
          .gpu_tokens = 3200,
          .cpu_tokens = 32'000};
}

TEST(WholeRunTest, CountsAllOutputsAndTheirTimes) {
  const AnalyticCosts costs = SmallSliceCosts(30, 110);
  const std::vector<RunRequest> requests(40, {.prompt_tokens = 200, .output_tokens = 20});
  for (const char* strategy : {"gpu-only", "asymmetric", "async"}) {
    SCOPED_TRACE(strategy);
    const auto run = PlayRun(SetupOf(strategy, costs), costs, requests);
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_EQ(run->num_finished, 40);
    EXPECT_EQ(run->output_tokens, 40 * 20);
    EXPECT_EQ(run->prefill_tokens, 40 * 200);
    EXPECT_NEAR(run->parts.SumUs(), run->us, 1e-6 * run->us);
    EXPECT_LE(run->kv_tokens[0], 3200);
    for (const RunTimes& times : run->times) {
      EXPECT_GT(times.first_token_us, 0);
      EXPECT_GT(times.end_us, times.first_token_us);
      EXPECT_LE(times.end_us, run->us);
    }
  }
}

TEST(WholeRunTest, WaitsForArrivals) {
  const AnalyticCosts costs = SmallSliceCosts(30, 110);
  constexpr double kGapUs = 2e6;  // far more than a request takes
  std::vector<RunRequest> requests(5, {.prompt_tokens = 100, .output_tokens = 4});
  for (size_t i = 0; i < requests.size(); ++i) requests[i].arrival_us = kGapUs * static_cast<double>(i);
  const auto run = PlayRun(SetupOf("gpu-only", costs), costs, requests);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_GT(run->idle_us, 3.5 * kGapUs);
  const double alone_us = run->times[0].end_us;
  for (const RunTimes& times : run->times) EXPECT_NEAR(times.end_us - times.arrival_us, alone_us, 1);
}

// The clock of a run is a sum: rounded, it may be just before the arrival that was waited for.
TEST(WholeRunTest, WaitsForArrivalsAtAnyTime) {
  const AnalyticCosts costs = SmallSliceCosts(30, 110);
  std::vector<RunRequest> requests(1000, {.prompt_tokens = 100, .output_tokens = 4});
  const auto alone = PlayRun(SetupOf("gpu-only", costs), costs, std::span(requests).first(1));
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  // Each comes soon after the one before has ended, so that neither working nor waiting is most of the time.
  for (size_t i = 1; i < requests.size(); ++i) {
    requests[i].output_tokens = 1 + static_cast<int64_t>(i % 4);
    const double share = std::fmod(static_cast<double>(i) * std::numbers::phi, 1.0);
    requests[i].arrival_us = requests[i - 1].arrival_us + (1 + share) * alone->us;
  }
  const auto run = PlayRun(SetupOf("gpu-only", costs), costs, requests);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->num_finished, std::ssize(requests));
  for (const RunTimes& times : run->times) ASSERT_GT(times.first_token_us, times.arrival_us);
}

TEST(WholeRunTest, BeginsAmidTheWorkAndCountsAWindow) {
  const AnalyticCosts costs = SmallSliceCosts(30, 110);
  std::vector<RunRequest> requests(8, {.prompt_tokens = 200, .output_tokens = 400, .made_tokens = 10});
  for (size_t i = 0; i < requests.size(); ++i) requests[i].tier = i < 4 ? Tier::kGpu : Tier::kCpu;
  const auto run =
      PlayRun(SetupOf("asymmetric", costs), costs, requests, {.begin_us = 200e3, .end_us = 1200e3});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_NEAR(run->us, 1e6, 100e3);
  EXPECT_EQ(run->prefill_tokens, 0);
  EXPECT_GT(run->output_tokens, 8);
  EXPECT_LT(run->output_tokens, 8 * 390);
  EXPECT_NEAR(run->decodes[0] + run->decodes[1], 8, 1e-9);
  requests[0].prompt_tokens = 4000;
  const auto too_large = PlayRun(SetupOf("asymmetric", costs), costs, requests);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
