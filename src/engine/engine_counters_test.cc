#include "engine/engine_counters.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/request_books_testing.h"
#include "perf/time_model.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::BooksInUse;
using testing::Chunk;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::MainPlan;
using testing::MakeRequest;

constexpr int64_t kNsPerUs = 1000;

CostTable Table() {
  return CostTable::Create({.num_layers = 3,
                            .linear = {{1, 100}, {1000, 1000}},
                            .gpu_decode_attention = {{1, {{100, 10}, {10000, 1000}}}},
                            .prefill_attention = {{100, {{100, 20}, {1000, 200}}}},
                            .outside_layers = {{0, 100}, {100, 200}},
                            .cpu_attention = {{1, {{100, 50}, {10000, 5000}}}},
                            .exchange = {{1, 10}},
                            .swap = {{32, 10}}})
      .value();
}

IterationResult RanUs(int64_t begin_us, int64_t end_us) {
  IterationResult result;
  result.device_begin_ns = begin_us * kNsPerUs;
  result.device_end_ns = end_us * kNsPerUs;
  return result;
}

class EngineCountersTest : public ::testing::Test {
 protected:
  EngineCounters Counters(int64_t num_attention_threads = 0, bool learns = false) {
    return {use_.kv.get(), &use_.books.state(), learns ? &costs_ : nullptr, num_attention_threads};
  }
  static void KeepAndCount(const IterationPlan& plan, IterationResult result, EngineCounters* counters) {
    counters->Keep(plan, std::move(result));
    counters->Count();
  }

  BooksInUse use_{{10, 20}};
  CostTable table_ = Table();
  CorrectedCosts costs_{&table_};
};

TEST_F(EngineCountersTest, GaugesAreThoseOfNowAndTheFullestCpuTierIsRemembered) {
  EngineCounters counters = Counters();
  EngineStats published;
  published.generation_tokens = 3;
  counters.UpdateGauges(&published);
  EXPECT_EQ(published.cpu_blocks_free, 20);
  use_.AddDecoding(1, 8);
  use_.AddDecoding(2, 20, Tier::kCpu);
  use_.AddDecoding(3, 4, Tier::kCpu);
  for (RequestId id = 4; id <= 5; ++id) use_.books.Add(MakeRequest(id, 8), true);
  counters.UpdateGauges(&published);
  EXPECT_EQ(published.num_running, 3);
  EXPECT_EQ(published.num_waiting, 2);
  EXPECT_EQ(published.gpu_blocks_total, 10);
  EXPECT_EQ(published.gpu_blocks_free, 8);
  EXPECT_EQ(published.cpu_blocks_total, 20);
  EXPECT_EQ(published.cpu_blocks_free, 14);
  EXPECT_EQ(published.block_size, 4);
  EXPECT_EQ(published.cpu_kv_tokens, 24);
  EXPECT_EQ(published.generation_tokens, 3U);  // counters stay
  use_.books.Forget(2);
  const EngineStats& snapshot = counters.Snapshot();
  EXPECT_EQ(snapshot.num_running, 2);
  EXPECT_EQ(snapshot.cpu_kv_tokens, 4);
  EXPECT_EQ(snapshot.max_cpu_kv_tokens, 24);
}

TEST_F(EngineCountersTest, AnIterationIsCountedOnceAndOnlyByCount) {
  EngineCounters counters = Counters();
  IterationPlan plan = MainPlan({GpuDecode(1, 8)});
  plan.strategy = "gpu-only";
  counters.Keep(plan, RanUs(100, 350));
  EXPECT_EQ(counters.stats().iteration.count(), 0U);
  counters.Count();
  counters.Count();
  EXPECT_EQ(counters.stats().iteration.count(), 1U);
  EXPECT_DOUBLE_EQ(counters.stats().iteration.SumUs(), 250);
  EXPECT_DOUBLE_EQ(counters.stats().gpu_busy_seconds, 250e-6);
  plan.strategy = "auto";
  KeepAndCount(plan, RanUs(350, 360), &counters);
  KeepAndCount(plan, RanUs(360, 370), &counters);
  EXPECT_EQ(counters.stats().strategy_iterations,
            (std::map<std::string, uint64_t>{{"gpu-only", 1}, {"auto", 2}}));
}

TEST_F(EngineCountersTest, AnIterationsTokensAreThoseSinceTheOneBefore) {
  EngineCounters counters = Counters();
  const IterationPlan plan = MainPlan({GpuDecode(1, 8)});
  const auto runs = [&](uint64_t num_prompt_tokens, uint64_t num_generation_tokens) {
    counters.Keep(plan, RanUs(0, 100));
    // Results are taken after that, and before anything is counted.
    counters.stats().prompt_tokens += num_prompt_tokens;
    counters.stats().generation_tokens += num_generation_tokens;
    counters.Count();
    counters.Count();
  };
  for (const auto& [prompt, generation] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 0}, {0, 1}, {0, 2}, {5, 3}, {9, 0}, {16384, 0}, {16384, 1}}) {
    runs(prompt, generation);
  }
  const TokenHistogram& tokens = counters.stats().iteration_tokens;
  EXPECT_EQ(tokens.count(), 7U);
  EXPECT_EQ(tokens.sum(), 32789U);
  EXPECT_EQ(tokens.counts(), (std::array<uint64_t, 14>{2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}));
}

TEST_F(EngineCountersTest, AGapLiesBetweenIterationsThatFollowEachOther) {
  EngineCounters counters = Counters();
  const IterationPlan plan = MainPlan({GpuDecode(1, 8)});
  KeepAndCount(plan, RanUs(1000, 1100), &counters);
  EXPECT_EQ(counters.stats().gpu_gap_seconds, 0);
  KeepAndCount(plan, RanUs(1130, 1200), &counters);
  EXPECT_DOUBLE_EQ(counters.stats().gpu_gap_seconds, 30e-6);
  counters.Pause();
  KeepAndCount(plan, RanUs(5000, 5100), &counters);
  EXPECT_DOUBLE_EQ(counters.stats().gpu_gap_seconds, 30e-6);
  KeepAndCount(plan, RanUs(5105, 5200), &counters);
  EXPECT_DOUBLE_EQ(counters.stats().gpu_gap_seconds, 35e-6);
}

TEST_F(EngineCountersTest, CpuAttentionIsBusyAsItsWorkersAreOnAverage) {
  IterationResult result = RanUs(0, 100);
  result.cpu_attention = {
      .num_tasks = 1, .kv_bytes = 4096, .attended_kv_bytes = 9000, .busy_us = 300, .task_us = 90};
  EngineCounters counters = Counters(4);
  KeepAndCount(MainPlan({GpuDecode(1, 8)}), result, &counters);
  EXPECT_DOUBLE_EQ(counters.stats().cpu_attention_busy_seconds, 75e-6);
  EXPECT_EQ(counters.stats().cpu_attention_kv_bytes, 4096U);
  EXPECT_EQ(counters.stats().cpu_attention_attended_kv_bytes, 9000U);
  EngineCounters without_cpu_tier = Counters(0);
  KeepAndCount(MainPlan({GpuDecode(1, 8)}), result, &without_cpu_tier);
  EXPECT_EQ(without_cpu_tier.stats().cpu_attention_busy_seconds, 0);
}

TEST_F(EngineCountersTest, APrefillToTheCpuTierCountsAsSwapped) {
  EngineCounters counters = Counters(4);
  KeepAndCount(MainPlan({Chunk(1, 0, 8, true, Tier::kCpu), Chunk(2, 0, 5, true), GpuDecode(3, 8)}),
               RanUs(0, 100), &counters);
  EXPECT_EQ(counters.stats().swapped_tokens, 8U);
}

TEST_F(EngineCountersTest, CostsLearnFromWhatDidNotStall) {
  EngineCounters counters = Counters(4, true);
  const IterationPlan plan = MainPlan({GpuDecode(1, 99)});
  const TimeModel time(table_);
  const double predicted_us = time.IterationUs(time.LoadOf(plan));
  IterationResult stalled = RanUs(0, 100);
  stalled.stalled = true;
  KeepAndCount(plan, std::move(stalled), &counters);
  EXPECT_EQ(counters.stats().predicted_seconds, 0);
  const auto measured_us = static_cast<int64_t>(predicted_us) + 100;
  KeepAndCount(plan, RanUs(0, measured_us), &counters);
  EXPECT_DOUBLE_EQ(counters.stats().predicted_seconds, predicted_us / 1e6);
  EXPECT_DOUBLE_EQ(counters.stats().prediction_error_seconds,
                   (static_cast<double>(measured_us) - predicted_us) / 1e6);
  EXPECT_GT(costs_.gpu_factor(IterationMode::kOpByOp), 1);
  EXPECT_EQ(counters.stats().iteration.count(), 2U);  // the stalled one took its time, too
  IterationResult as_graph = RanUs(0, measured_us);
  as_graph.as_graph = true;
  KeepAndCount(plan, std::move(as_graph), &counters);
  EXPECT_GT(costs_.gpu_factor(IterationMode::kGraph), costs_.gpu_factor(IterationMode::kOpByOp));
}

// CPU attention takes what is predicted for the one cohort that made its visit: it is as fast as it seemed.
TEST_F(EngineCountersTest, ACohortThatSkippedGaveCpuAttentionNoWork) {
  const auto rides = [](CohortId id, SequenceId sequence, int64_t cursor) {
    return CohortStep{.cohort = id,
                      .rows = CpuDecodes({{sequence, 999}}),
                      .cursor = cursor,
                      .visits = {{cursor, cursor}},
                      .rides = true};
  };
  IterationPlan plan = MainPlan({GpuDecode(1, 99)});
  plan.cohorts = {rides(1, 2, 0), rides(2, 3, 1)};
  const TimeModel time(table_);
  IterationResult result = RanUs(0, 1000);
  result.as_graph = true;
  result.cpu_attention.task_us = static_cast<int64_t>(time.RiderWorkOf(plan.cohorts[1]).attention_us);
  ASSERT_GT(result.cpu_attention.task_us, 0);
  result.cohorts = {{.cohort = 1, .cursor = 0, .num_visits = 0}, {.cohort = 2, .cursor = 2, .num_visits = 1}};
  EngineCounters counters = Counters(4, true);
  KeepAndCount(plan, result, &counters);
  EXPECT_NEAR(costs_.cpu_factor(), 1, 1e-6);
  // Twice the work in this time is half the cost.
  result.cohorts[0] = {.cohort = 1, .cursor = 1, .num_visits = 1};
  for (int i = 0; i < 20; ++i) KeepAndCount(plan, result, &counters);
  EXPECT_LT(costs_.cpu_factor(), 0.8);
}

}  // namespace
}  // namespace tandem
