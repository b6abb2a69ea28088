#include "perf/iteration_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;

// Every cost another power of ten, so that a sum shows what it is made of.
class PlainCosts : public LayerCosts {
 public:
  int64_t num_layers() const override { return 4; }
  double LinearUs(int64_t num_tokens) const override { return static_cast<double>(num_tokens); }
  double GpuDecodeAttentionUs(int64_t num_rows, int64_t kv_tokens) const override {
    return 0.01 * static_cast<double>(num_rows) + 0.001 * static_cast<double>(kv_tokens);
  }
  double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const override {
    return 0.1 * static_cast<double>(num_tokens * context_len);
  }
  double CpuAttentionUs(int64_t num_rows, int64_t kv_tokens) const override {
    return static_cast<double>(num_rows) + 0.1 * static_cast<double>(kv_tokens);
  }
  double ExchangeUs(int64_t num_rows) const override { return 100.0 * static_cast<double>(num_rows); }
  double SwapUs(int64_t num_tokens) const override { return static_cast<double>(num_tokens); }
  double OutsideLayersUs(int64_t num_sampled) const override {
    return 1000 + static_cast<double>(num_sampled);
  }
};

TEST(IterationLoad, CountsAPlan) {
  IterationPlan plan;
  plan.main.spans = {Chunk(1, 10, 5, true), Chunk(2, 0, 7, false, Tier::kCpu), GpuDecode(3, 99),
                     GpuDecode(4, 199), CpuDecode(5, 9)};
  plan.cohorts.push_back({.cohort = 0,
                          .rows = CpuDecodes({{6, 19}, {7, 29}}),
                          .visits = {{-1, -1}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}});
  const IterationLoad load = LoadOf(plan, PlainCosts());
  EXPECT_EQ(load.prefill_tokens, 12);
  EXPECT_DOUBLE_EQ(load.prefill_attention_us, 0.1 * (5 * 15 + 7 * 7));
  EXPECT_EQ(load.gpu_decode_rows, 2);
  EXPECT_EQ(load.gpu_kv_tokens, 300);
  EXPECT_EQ(load.main_cpu_rows, 1);
  EXPECT_EQ(load.main_cpu_kv_tokens, 10);
  EXPECT_EQ(load.cohort_rows, 2);
  EXPECT_EQ(load.cohort_kv_tokens, 50);
  EXPECT_EQ(load.num_sampled, 6);
  EXPECT_EQ(load.swapped_tokens, 7);
  EXPECT_EQ(load.main_rows(), 15);
  EXPECT_EQ(load.decode_rows(), 5);
}

TEST(IterationLoad, RidersCountWhereTheyRide) {
  const auto ride = [](CohortId id, std::vector<RowSpan> rows, int64_t cursor) {
    return CohortStep{
        .cohort = id, .rows = std::move(rows), .cursor = cursor, .visits = {{cursor, cursor}}, .rides = true};
  };
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 99), GpuDecode(2, 199)};
  plan.cohorts = {ride(0, CpuDecodes({{3, 9}, {4, 19}}), kEntry), ride(1, {CpuDecode(5, 29)}, 1),
                  ride(2, {CpuDecode(6, 39)}, 1), ride(3, CpuDecodes({{7, 49}, {8, 59}, {9, 69}}), 3)};
  // Left where it is: no work.
  plan.cohorts.push_back({.cohort = 4, .rows = {CpuDecode(10, 1000)}, .cursor = 2});
  // Free up to three rows.
  class SteppedCosts : public PlainCosts {
    double LinearUs(int64_t num_tokens) const override {
      return num_tokens == 0 ? 0 : 7.0 + static_cast<double>(std::max<int64_t>(0, num_tokens - 3));
    }
  };
  const SteppedCosts costs;
  const IterationLoad load = LoadOf(plan, costs);
  EXPECT_EQ(load.main_rows(), 2);
  EXPECT_EQ(load.cohort_rows, 0);
  EXPECT_EQ(load.rider_rows, 7);
  EXPECT_EQ(load.rider_kv_tokens, 30 + 30 + 40);      // nothing behind the last layer
  EXPECT_DOUBLE_EQ(load.rider_linear_us, 1 + 1 + 2);  // boundaries -1, 1 and 3
  EXPECT_DOUBLE_EQ(load.rider_exchange_us, 200 + 100 + 100);
  EXPECT_DOUBLE_EQ(load.rider_cpu_us, 400 + (2 + 3) + (1 + 3) + (1 + 4));
  EXPECT_EQ(load.num_sampled, 2 + 3);
  // Once, not a layer; nobody waits for the CPU.
  IterationLoad without = load;
  without.rider_linear_us = 0;
  EXPECT_DOUBLE_EQ(IterationUs(load, costs), IterationUs(without, costs) + 4);
  EXPECT_DOUBLE_EQ(TimesOf(load, costs).cpu_cohort_us, 0);
}

TEST(IterationLoad, ACohortAmidATokenCountsItsShare) {
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 99)};
  // Two of five visits.
  plan.cohorts.push_back({.cohort = 0,
                          .rows = CpuDecodes({{2, 9}, {3, 9}, {4, 9}, {5, 9}}),
                          .cursor = 1,
                          .visits = {{1, 1}, {2, 2}}});
  EXPECT_EQ(LoadOf(plan, PlainCosts()).cohort_rows, 2);
  EXPECT_EQ(LoadOf(plan, PlainCosts()).cohort_kv_tokens, 16);
  EXPECT_EQ(LoadOf(plan, PlainCosts()).num_sampled, 1);
  plan.cohorts[0].cursor = 2;
  plan.cohorts[0].visits = {{2, 2}, {3, 3}};
  EXPECT_EQ(LoadOf(plan, PlainCosts()).num_sampled, 5);
}

TEST(IterationLoad, TimesOfALayer) {
  const IterationLoad load = {.prefill_tokens = 12,
                              .prefill_attention_us = 3,
                              .gpu_decode_rows = 2,
                              .gpu_kv_tokens = 300,
                              .main_cpu_rows = 1,
                              .main_cpu_kv_tokens = 10,
                              .cohort_rows = 2,
                              .cohort_kv_tokens = 50,
                              .num_sampled = 5};
  const LayerTimes times = TimesOf(load, PlainCosts());
  EXPECT_DOUBLE_EQ(times.linear_main_us, 15);
  EXPECT_DOUBLE_EQ(times.linear_cohort_us, 2);
  EXPECT_DOUBLE_EQ(times.gpu_attention_us, 3 + 0.02 + 0.3);
  EXPECT_DOUBLE_EQ(times.cpu_main_us, 1 + 1 + 100);
  EXPECT_DOUBLE_EQ(times.cpu_cohort_us, 2 + 5 + 200);
  EXPECT_DOUBLE_EQ(IterationUs(load, PlainCosts()), 4 * (207 + 102) + 1005.0);
}

TEST(IterationLoad, TheLongerPartOfEachHalfCounts) {
  const LayerTimes gpu = {.linear_main_us = 10,
                          .linear_cohort_us = 3,
                          .gpu_attention_us = 4,
                          .cpu_main_us = 6,
                          .cpu_cohort_us = 9};
  EXPECT_DOUBLE_EQ(gpu.LayerUs(), 17);
  const LayerTimes cpu = {.linear_main_us = 10,
                          .linear_cohort_us = 3,
                          .gpu_attention_us = 4,
                          .cpu_main_us = 8,
                          .cpu_cohort_us = 11};
  EXPECT_DOUBLE_EQ(cpu.LayerUs(), 19);
}

TEST(IterationLoad, NothingTakesOnlyWhatIsOutside) {
  EXPECT_DOUBLE_EQ(IterationUs({}, PlainCosts()), 1000);
  EXPECT_DOUBLE_EQ(TimesOf({}, PlainCosts()).LayerUs(), 0);
}

}  // namespace
}  // namespace tandem
