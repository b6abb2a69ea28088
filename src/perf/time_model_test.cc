#include "perf/time_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "perf/steady_times.h"
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
  const RowTiles& row_tiles() const override { return tiles_; }

 private:
  const RowTiles tiles_ = RowTiles();
};

class HandedOverCosts : public PlainCosts {
 public:
  double HandOverUs() const override { return 7; }
};

TEST(TimeModel, HandingOverIsOfIterationsThatWaitForTheCpu) {
  const PlainCosts plain;
  const HandedOverCosts handed_over;
  const auto more_us = [&](const IterationLoad& load) {
    return TimeModel(handed_over).IterationUs(load) - TimeModel(plain).IterationUs(load);
  };
  EXPECT_EQ(more_us({.prefill_tokens = 10, .gpu_decode_rows = 1, .gpu_kv_tokens = 10}), 0);
  EXPECT_EQ(more_us({.gpu_decode_rows = 1, .gpu_kv_tokens = 10, .rider_rows = 3, .rider_linear_us = 5}), 0);
  EXPECT_EQ(more_us({.main_cpu_rows = 1, .main_cpu_kv_tokens = 10}), 4 * 7);
  EXPECT_EQ(more_us({.gpu_decode_rows = 1, .gpu_kv_tokens = 10, .cohort_rows = 2, .cohort_kv_tokens = 10}),
            4 * 7);
  const SteadyMix mix{.prompt_tokens_per_output = 2, .mean_context = 100, .mean_prompt = 50, .gpu_rows = 8};
  const auto steady_us = [&](const LayerCosts& costs, double cpu_rows) {
    return SteadyTimes(mix, costs).Asymmetric(cpu_rows).iteration_us;
  };
  EXPECT_EQ(steady_us(handed_over, 0), steady_us(plain, 0));
  EXPECT_NEAR(steady_us(handed_over, 5) - steady_us(plain, 5), 4 * 7, 1e-6);
}

TEST(TimeModel, PartsOfAnIterationSumToIt) {
  const HandedOverCosts costs;
  const TimeModel time(costs);
  // What limits it: reading weights, waiting for the CPU, arithmetic, copies.
  const IterationLoad few{.gpu_decode_rows = 1, .gpu_kv_tokens = 10, .num_sampled = 1};
  IterationLoad late = few;
  late.main_cpu_rows = 3;
  late.main_cpu_kv_tokens = 500;
  IterationLoad whole = late;
  whole.cohort_rows = 2;
  whole.cohort_kv_tokens = 40;
  whole.prefill_tokens = 400;
  whole.prefill_attention_us = 30;
  whole.rider_linear_us = 5;
  IterationLoad copying = few;
  copying.swapped_tokens = 10'000;
  for (const IterationLoad& load : {few, late, whole, copying}) {
    const TimeParts parts = time.PartsOf(load);
    EXPECT_NEAR(parts.SumUs(), time.IterationWithCopiesUs(load), 1e-6);
    for (const double us : {parts.weights_us, parts.products_us, parts.gpu_attention_us, parts.cpu_wait_us,
                            parts.copies_us, parts.outside_us})
      EXPECT_GE(us, -1e-9);
  }
  EXPECT_DOUBLE_EQ(time.PartsOf(few).weights_us, 4);
  EXPECT_NEAR(time.PartsOf(few).cpu_wait_us, 0, 1e-9);
  EXPECT_GT(time.PartsOf(late).cpu_wait_us, time.PartsOf(late).products_us);
  EXPECT_DOUBLE_EQ(time.PartsOf(whole).weights_us, 8);
  EXPECT_GT(time.PartsOf(copying).copies_us, 39'000 - 1100);
}

TEST(TimeModel, CountsAPlan) {
  IterationPlan plan;
  plan.main.spans = {Chunk(1, 10, 5, true), Chunk(2, 20, 7, false, Tier::kCpu), GpuDecode(3, 99),
                     GpuDecode(4, 199), CpuDecode(5, 9)};
  plan.cohorts.push_back({.cohort = 0,
                          .rows = CpuDecodes({{6, 19}, {7, 29}}),
                          .visits = {{-1, -1}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}});
  const PlainCosts costs;
  const IterationLoad load = TimeModel(costs).LoadOf(plan);
  EXPECT_EQ(load.prefill_tokens, 12);
  EXPECT_DOUBLE_EQ(load.prefill_attention_us, 0.1 * (5 * 15 + 7 * 27));
  EXPECT_EQ(load.gpu_decode_rows, 2);
  EXPECT_EQ(load.gpu_kv_tokens, 300);
  EXPECT_EQ(load.main_cpu_rows, 1);
  EXPECT_EQ(load.main_cpu_kv_tokens, 10);
  EXPECT_EQ(load.cohort_rows, 2);
  EXPECT_EQ(load.cohort_kv_tokens, 50);
  EXPECT_EQ(load.num_sampled, 6);
  EXPECT_EQ(load.swapped_tokens, 27);
  EXPECT_EQ(load.main_rows(), 15);
  EXPECT_EQ(load.decode_rows(), 5);
}

TEST(TimeModel, RidersCountWhereTheyRide) {
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
  const TimeModel time(costs);
  const IterationLoad load = time.LoadOf(plan);
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
  EXPECT_DOUBLE_EQ(time.IterationUs(load), time.IterationUs(without) + 4);
  EXPECT_DOUBLE_EQ(time.TimesOf(load).cpu_cohort_us, 0);
  EXPECT_DOUBLE_EQ(time.WaitedCpuUs(load), 0);
  EXPECT_DOUBLE_EQ(time.CpuWorkUs(load), (2 + 3) + (1 + 3) + (1 + 4));
}

TEST(TimeModel, ACohortAmidATokenCountsItsShare) {
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 99)};
  const PlainCosts costs;
  const TimeModel time(costs);
  // Two of five visits.
  plan.cohorts.push_back({.cohort = 0,
                          .rows = CpuDecodes({{2, 9}, {3, 9}, {4, 9}, {5, 9}}),
                          .cursor = 1,
                          .visits = {{1, 1}, {2, 2}}});
  EXPECT_EQ(time.LoadOf(plan).cohort_rows, 2);
  EXPECT_EQ(time.LoadOf(plan).cohort_kv_tokens, 16);
  EXPECT_EQ(time.LoadOf(plan).num_sampled, 1);
  plan.cohorts[0].cursor = 2;
  plan.cohorts[0].visits = {{2, 2}, {3, 3}};
  EXPECT_EQ(time.LoadOf(plan).num_sampled, 5);
}

TEST(TimeModel, TimesOfALayer) {
  const IterationLoad load = {.prefill_tokens = 12,
                              .prefill_attention_us = 3,
                              .gpu_decode_rows = 2,
                              .gpu_kv_tokens = 300,
                              .main_cpu_rows = 1,
                              .main_cpu_kv_tokens = 10,
                              .cohort_rows = 2,
                              .cohort_kv_tokens = 50,
                              .num_sampled = 5};
  const PlainCosts costs;
  const TimeModel time(costs);
  const LayerTimes times = time.TimesOf(load);
  EXPECT_DOUBLE_EQ(times.linear_main_us, 15);
  EXPECT_DOUBLE_EQ(times.linear_cohort_us, 2);
  EXPECT_DOUBLE_EQ(times.gpu_attention_us, 3 + 0.02 + 0.3);
  EXPECT_DOUBLE_EQ(times.cpu_main_us, 1 + 1 + 100);
  EXPECT_DOUBLE_EQ(times.cpu_cohort_us, 2 + 5 + 200);
  EXPECT_DOUBLE_EQ(time.CohortWindowUs(load), 15);
  EXPECT_DOUBLE_EQ(time.MainWindowUs(load), 2 + 3.32);
  EXPECT_DOUBLE_EQ(time.IterationUs(load), 4 * (207 + 102) + 1005.0);
  EXPECT_DOUBLE_EQ(time.WaitedCpuUs(load), 4 * (102 + 207));
  EXPECT_DOUBLE_EQ(time.CpuWorkUs(load), 4 * (2 + 7));
}

TEST(TimeModel, ACopyCanTakeLongerThanAnIteration) {
  const PlainCosts costs;
  const TimeModel time(costs);
  IterationLoad load = {.gpu_decode_rows = 10, .swapped_tokens = 260};
  EXPECT_DOUBLE_EQ(time.IterationWithCopiesUs(load), 4 * (10 + 0.1) + 1000);
  load.swapped_tokens = 261;
  EXPECT_DOUBLE_EQ(time.IterationWithCopiesUs(load), 4 * 261);
}

TEST(TimeModel, TheGpusShareIsThatOfTheLongerParts) {
  const PlainCosts costs;
  const TimeModel time(costs);
  // 300 > 1 + 0.2 + 100 in the first half, 1 + 2 < 1 + 0.1 + 100 in the second.
  IterationLoad load = {.prefill_tokens = 299,
                        .prefill_attention_us = 2,
                        .main_cpu_rows = 1,
                        .main_cpu_kv_tokens = 1,
                        .cohort_rows = 1,
                        .cohort_kv_tokens = 2,
                        .rider_linear_us = 50};
  EXPECT_DOUBLE_EQ(time.GpuShare(load), (4 * 300 + 1050.0) / (4 * 401.1 + 1050));
  load.prefill_attention_us = 200;
  EXPECT_DOUBLE_EQ(time.GpuShare(load), 1);
}

TEST(TimeModel, TheLongerPartOfEachHalfCounts) {
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

TEST(TimeModel, NothingTakesOnlyWhatIsOutside) {
  const PlainCosts costs;
  EXPECT_DOUBLE_EQ(TimeModel(costs).IterationUs({}), 1000);
  EXPECT_DOUBLE_EQ(TimeModel(costs).TimesOf({}).LayerUs(), 0);
}

TEST(TimeModel, RowsByThemselves) {
  // Weights are read in the time of four rows.
  class FlatCosts : public PlainCosts {
    double LinearUs(int64_t num_tokens) const override {
      return num_tokens == 0 ? 0 : static_cast<double>(std::max<int64_t>(4, num_tokens));
    }
  };
  const FlatCosts costs;
  const TimeModel time(costs);
  EXPECT_DOUBLE_EQ(time.LinearUs(0.25), 1);
  EXPECT_DOUBLE_EQ(time.LinearUs(3), 4);
  EXPECT_DOUBLE_EQ(time.LinearUs(4.5), 4.5);
  EXPECT_DOUBLE_EQ(time.LinearSlopeUs(), 1);
  EXPECT_DOUBLE_EQ(time.CpuUs(2, 30), 2 + 3 + 200);
  EXPECT_DOUBLE_EQ(time.CpuUs(0, 0), 0);
  EXPECT_DOUBLE_EQ(time.PromptAttentionUs(10, 0), 0.1 * 100);
  EXPECT_DOUBLE_EQ(time.PromptAttentionUs(10, 4), 0.1 * (4 * 4 + 4 * 8 + 2 * 10));
  EXPECT_DOUBLE_EQ(time.PromptAttentionUs(10, 0, 7), 0.1 * 3 * 10);
  EXPECT_DOUBLE_EQ(time.PromptAttentionUs(10, 4, 4), 0.1 * (4 * 8 + 2 * 10));
  EXPECT_DOUBLE_EQ(time.PromptTokenAttentionUs(10), 1);
  // 40 instead of 20 prompt tokens of prompts of 10 tokens.
  EXPECT_DOUBLE_EQ(time.PrefillDifferenceUs(1.5, 40, 20, 10), 4 * (20 + 20));
  EXPECT_DOUBLE_EQ(time.PrefillDifferenceUs(0, 2, 6, 10), 4 * (4 - 6 - 4.0));
}

TEST(TimeModel, TheCpusRateIsThatOfTheRowsInTheWindow) {
  const PlainCosts costs;
  const TimeModel time(costs);
  // A row of 50 tokens takes 1 + 5 + 100 us: three rows in the window. Less than one row is one row.
  EXPECT_DOUBLE_EQ(time.CpuTokensPerUs(50, 330), 150 / 318.0);
  EXPECT_DOUBLE_EQ(time.CpuTokensPerUs(50, 0), 50 / 106.0);
  EXPECT_DOUBLE_EQ(time.CpuTokensPerUs(0, 330), 0);
}

// No exchange that hides everything else, and linear operations of ten times a row.
class SteadyCosts : public PlainCosts {
 public:
  double LinearUs(int64_t num_tokens) const override { return 10.0 * static_cast<double>(num_tokens); }
  double ExchangeUs(int64_t num_rows) const override { return static_cast<double>(num_rows); }
};

// r = 2, g = 4 and c = 6 rows of 100 tokens: 20 prompt tokens of prompts of 10 tokens.
constexpr SteadyMix kMix = {
    .prompt_tokens_per_output = 2, .mean_context = 100, .mean_prompt = 10, .gpu_rows = 4};

TEST(SteadyTimes, AsymmetricIsTheIterationOfTheSplitThatSuitsBest) {
  const SteadyCosts costs;
  const TimeModel time(costs);
  const SteadyTimes::Point point = SteadyTimes(kMix, costs).Asymmetric(6);
  // Attention: 20 * 0.1 * 10 of the prompts, 0.04 + 0.4 of the decodes. A cpu row takes 1 + 10 + 1 us. All
  // six in the cohort hide behind its 240 us, all in the main sub-batch do not hide behind 20.44.
  const double in_cohort_us = 240 + 60 + 20.44;
  const double in_main_us = 300 + 72;
  ASSERT_LT(in_cohort_us, in_main_us);
  EXPECT_DOUBLE_EQ(point.iteration_us, 4 * in_cohort_us + 1012);
  EXPECT_DOUBLE_EQ(point.rate, 10 / point.iteration_us);

  double best_us = 0;
  for (int64_t num_main = 0; num_main <= 6; ++num_main) {
    IterationPlan plan;
    plan.main.spans = {Chunk(1, 0, 10, true), Chunk(2, 0, 10, true)};
    for (SequenceId id = 3; id < 7; ++id) plan.main.spans.push_back(GpuDecode(id, 99));
    CohortStep cohort{.cohort = 0, .visits = {{-1, -1}, {0, 0}, {1, 1}, {2, 2}, {3, 3}}};
    for (int64_t i = 0; i < 6; ++i) {
      (i < num_main ? plan.main.spans : cohort.rows).push_back(CpuDecode(static_cast<SequenceId>(7 + i), 99));
    }
    if (!cohort.rows.empty()) plan.cohorts = {cohort};
    const double us = time.IterationUs(time.LoadOf(plan));
    if (num_main == 0 || us < best_us) best_us = us;
  }
  EXPECT_DOUBLE_EQ(point.iteration_us, best_us);
}

TEST(SteadyTimes, WithoutCpuRowsBothOverlapsAreTheIterationOfTheGpuTier) {
  const SteadyCosts costs;
  const TimeModel time(costs);
  const SteadyTimes steady(kMix, costs);
  // 8 prompt tokens, of which each attends for 1 us; 0.8 of a prompt ends.
  IterationLoad load = {.prefill_tokens = 8,
                        .prefill_attention_us = 8,
                        .gpu_decode_rows = 4,
                        .gpu_kv_tokens = 400,
                        .num_sampled = 5};
  EXPECT_DOUBLE_EQ(steady.Asymmetric(0).iteration_us, time.IterationUs(load));
  EXPECT_DOUBLE_EQ(steady.Asynchronous(0).iteration_us, time.IterationUs(load));
  EXPECT_DOUBLE_EQ(steady.Asynchronous(0).rate, 4 / time.IterationUs(load));
  EXPECT_DOUBLE_EQ(steady.PrefilledTokenUs(), 4 * (10 + 1));
}

TEST(SteadyTimes, AsynchronousRowsMakeAVisitAnIteration) {
  const SteadyCosts costs;
  SteadyMix mix = kMix;
  mix.num_cohorts = 5;
  // 10 rows in five cohorts of two make 2 of 10 tokens an iteration: 6 tokens, 12 prompt tokens, 1.2 prompts.
  // Each of the four layers' products see 16 rows, and 2 more where a cohort visits, which is at all 5
  // boundaries but counts at the layers.
  const double us = 4 * (160 + 0.44 + 12) + 4 * 20 + 1007;
  const SteadyTimes::Point in_time = SteadyTimes(mix, costs).Asynchronous(10);
  EXPECT_DOUBLE_EQ(in_time.iteration_us, us);
  EXPECT_DOUBLE_EQ(in_time.rate, 6 / us);

  // With contexts of 10,000 tokens the CPU needs 5 * 4 / 5 * (2 + 2000) us for all visits.
  mix.mean_context = 10000;
  const SteadyTimes::Point late = SteadyTimes(mix, costs).Asynchronous(10);
  const double share = late.iteration_us / (4 * 2002);
  EXPECT_LT(share, 0.25);
  EXPECT_NEAR(late.rate, (4 + share * 2) / late.iteration_us, 0.01 * late.rate);
}

TEST(IdealTimes, TheLongerOfGpuAndCpuAndPartsOfRows) {
  const SteadyCosts costs;
  const IdealTimes ideal({.prompt_tokens_per_output = 2, .prompt_attention_us = 3, .mean_context = 100},
                         costs);
  // 2 + 0.5 rows: 7.5 rows of products, 7.5 us of prompts' attention, decodes of 2 rows.
  EXPECT_DOUBLE_EQ(ideal.IterationUs(2, 0.5), 4 * (75 + 7.5 + 0.22) + 1002.5);
  // 200 rows of 11 us a layer, beside products of 600 rows.
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0, 200), 4 * (6000 + 600) + 1200);
  // Half a row is a product of one row, or 1.5 with its prompt.
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0.5, 0), 4 * (15 + 1.5 + 0.055) + 1001);
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0, 0), 0);
}

TEST(IdealTimes, TheCpuMayBeTheLongerPart) {
  const PlainCosts costs;
  const IdealTimes ideal({.mean_context = 1000}, costs);
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0, 10), 4 * 1010);
}

}  // namespace
}  // namespace tandem
