#include "engine/engine_counters.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/requests_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::GpuDecode;
using testing::kTestBlock;
using testing::MakeBooks;

class EngineCountersTest : public ::testing::Test {
 protected:
  // Counts an iteration of one decode.
  void Ran(int64_t begin_ns, int64_t end_ns) {
    IterationPlan plan;
    plan.strategy = "gpu-only";
    plan.main.spans = {GpuDecode(1, 3)};
    counters_.Keep(plan, {.device_begin_ns = begin_ns, .device_end_ns = end_ns});
    counters_.Count();
  }

  std::unique_ptr<KvBooks> kv_ = MakeBooks(8, 6);
  ScheduleState state_;
  EngineCounters counters_{kv_.get(), &state_, nullptr, /*num_attention_threads=*/2};
};

TEST_F(EngineCountersTest, DeviceTimeHasGapsUnlessTheEnginePaused) {
  Ran(1'000'000, 3'000'000);
  Ran(3'500'000, 4'500'000);
  EXPECT_DOUBLE_EQ(counters_.stats().gpu_busy_seconds, 0.003);
  EXPECT_DOUBLE_EQ(counters_.stats().gpu_gap_seconds, 0.0005);
  counters_.Pause();
  Ran(9'000'000, 9'500'000);
  EXPECT_DOUBLE_EQ(counters_.stats().gpu_gap_seconds, 0.0005);
  EXPECT_EQ(counters_.stats().iteration.count(), 3U);
  EXPECT_DOUBLE_EQ(counters_.stats().iteration.SumUs(), 3500);
  EXPECT_EQ(counters_.stats().strategy_iterations.at("gpu-only"), 3U);
}

TEST_F(EngineCountersTest, WhatIsKeptIsCountedOnce) {
  counters_.Count();
  IterationPlan plan;
  plan.strategy = "asymmetric";
  // To the cpu tier through the transit: 7 tokens change their tier.
  plan.main.spans = {Chunk(1, 0, 7, true, Tier::kCpu), Chunk(2, 0, 5, true)};
  counters_.Keep(plan,
                 {.device_begin_ns = 1, .device_end_ns = 2, .cpu_attention = {.kv_bytes = 64, .busy_us = 8}});
  EXPECT_EQ(counters_.stats().swapped_tokens, 0U);
  counters_.Count();
  counters_.Count();
  EXPECT_EQ(counters_.stats().swapped_tokens, 7U);
  EXPECT_EQ(counters_.stats().cpu_attention_kv_bytes, 64U);
  EXPECT_DOUBLE_EQ(counters_.stats().cpu_attention_busy_seconds, 4e-6);  // mean of two workers
  EXPECT_EQ(counters_.stats().strategy_iterations.at("asymmetric"), 1U);
}

TEST_F(EngineCountersTest, GaugesAreOfNowAndTheMostIsRemembered) {
  state_.running = {{.id = 1, .num_tokens = 4}};
  state_.waiting = {{.id = 2, .num_tokens = 4}, {.id = 3, .num_tokens = 4}};
  ASSERT_TRUE(kv_->Reserve(1, Tier::kCpu, 3 * kTestBlock));
  const EngineStats& stats = counters_.Snapshot();
  EXPECT_EQ(stats.num_running, 1);
  EXPECT_EQ(stats.num_waiting, 2);
  EXPECT_EQ(stats.gpu_blocks_total, 8);
  EXPECT_EQ(stats.gpu_blocks_free, 8);
  EXPECT_EQ(stats.cpu_blocks_free, 3);
  EXPECT_EQ(stats.cpu_kv_tokens, 3 * kTestBlock);
  kv_->Release(1);
  EngineStats later;
  counters_.UpdateGauges(&later);
  EXPECT_EQ(later.cpu_kv_tokens, 0);
  EXPECT_EQ(later.max_cpu_kv_tokens, 3 * kTestBlock);
}

}  // namespace
}  // namespace tandem
