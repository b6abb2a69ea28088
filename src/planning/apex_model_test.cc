#include "planning/apex_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "perf/analytic_costs.h"

namespace tandem {
namespace {

// T_glinear, T_gatt, N_G, N_C.
ApexTimes Decodes(double linear_us, double gpu_attention_us, double gpu_rate, double cpu_rate) {
  return {.linear_us = linear_us,
          .gpu_attention_us = gpu_attention_us,
          .gpu_tokens_per_us = gpu_rate,
          .cpu_tokens_per_us = cpu_rate};
}

TEST(ApexModel, ThroughputsAreThoseOfInequality5) {
  // (1): 150 us for 50 us * 20 tokens. (2): 250 us, in which the CPU reads 250 * 3.
  const ApexTimes times = Decodes(100, 50, 20, 3);
  EXPECT_DOUBLE_EQ(GpuOnlyDecodeThroughput(times), 1000.0 / 150);
  EXPECT_DOUBLE_EQ(DecodeCycleUs(times), 250);
  EXPECT_DOUBLE_EQ(PipelinedDecodeThroughput(times), (1000.0 + 750) / 250);
  EXPECT_TRUE(AsymmetricPaysForDecodes(times));
  EXPECT_FALSE(AsymmetricPaysForDecodes(Decodes(100, 50, 20, 2)));
}

TEST(ApexModel, NothingToDoPaysNothing) {
  for (const ApexTimes& times : {ApexTimes{}, Decodes(0, 0, 0, 5), Decodes(100, 50, 20, 0)}) {
    EXPECT_FALSE(AsymmetricPaysForDecodes(times));
    EXPECT_FALSE(AsymmetricPaysByRatio(times));
  }
  EXPECT_EQ(GpuOnlyDecodeThroughput({}), 0);
  EXPECT_EQ(PipelinedDecodeThroughput({}), 0);
  EXPECT_FALSE(AsymmetricPaysForMixed({}));
}

TEST(ApexModel, Inequality6IsInequality5) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-3, 3);
  int num_paying = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto draw = [&] { return std::pow(10, exponent(random)); };
    const ApexTimes times = Decodes(draw(), draw(), draw(), draw());
    const double ratio = times.gpu_tokens_per_us / times.cpu_tokens_per_us;
    if (std::abs(ratio / DecodeRatioLimit(times) - 1) < 1e-6) continue;  // rounding decides
    ASSERT_EQ(AsymmetricPaysByRatio(times), AsymmetricPaysForDecodes(times))
        << times.linear_us << " " << times.gpu_attention_us << " " << ratio;
    num_paying += AsymmetricPaysByRatio(times) ? 1 : 0;
  }
  EXPECT_GT(num_paying, 10000);
  EXPECT_LT(num_paying, 90000);
}

// "For typical T_gatt/T_glinear ratios (between 0.5 and 1.5), N_G/N_C must generally be less than 7.5 ... N_C
// must be at least 13 % of N_G."
TEST(ApexModel, RatioLimitsOfThePaper) {
  EXPECT_DOUBLE_EQ(DecodeRatioLimit(Decodes(100, 50, 1, 1)), 7.5);
  EXPECT_DOUBLE_EQ(DecodeRatioLimit(Decodes(100, 100, 1, 1)), 6);
  EXPECT_NEAR(DecodeRatioLimit(Decodes(100, 150, 1, 1)), 5.8333, 1e-4);
  for (int percent = 50; percent <= 150; ++percent) {
    const double share = percent / 100.0;
    const double limit = DecodeRatioLimit(Decodes(100, 100 * share, 1, 1));
    EXPECT_LE(limit, 7.5);
    EXPECT_GE(limit, 3 + 2 * std::sqrt(2.0) - 1e-9);  // at T_gatt/T_glinear = sqrt(2)
    // A CPU of less than 10 % of the GPU's speed (section 2.3) is not enough anywhere there; 20 % always is.
    EXPECT_FALSE(AsymmetricPaysForDecodes(Decodes(100, 100 * share, 100, 10)));
    EXPECT_TRUE(AsymmetricPaysForDecodes(Decodes(100, 100 * share, 100, 20)));
  }
}

TEST(ApexModel, PrefillGivesTheCpuTime) {
  ApexTimes times = Decodes(100, 100, 100, 10);
  times.prefill_linear_us = 100;
  EXPECT_DOUBLE_EQ(OverlapCycleUs(times), 300);
  EXPECT_FALSE(AsymmetricPaysForMixed(times));
  times.prefill_linear_us = 790;
  times.prefill_attention_us = 20;
  EXPECT_DOUBLE_EQ(OverlapCycleUs(times), 1010);
  EXPECT_TRUE(AsymmetricPaysForMixed(times));
  // (8) comes down to N_C T_overlap > N_G T_glinear.
  times.cpu_tokens_per_us = 100 * 100 / 1010.0 * 0.999;
  EXPECT_FALSE(AsymmetricPaysForMixed(times));
}

// What (8) leaves out, in figures: a CPU of 5 % of the GPU's speed beside a prefill.
TEST(ApexModel, Inequality8RefusesWhatPays) {
  ApexTimes times = Decodes(100, 100, 100, 5);
  times.prefill_linear_us = 800;  // the gpu decodes ride along
  times.prefill_attention_us = 100;
  const double gpu_tokens = times.gpu_tokens_per_us * times.gpu_attention_us;
  // gpu-only does the same prefill and decodes in T_m; asymmetric pipelining adds the other sub-batch.
  const double gpu_only_us = times.prefill_linear_us + times.prefill_attention_us + times.gpu_attention_us;
  const double overlap_us = OverlapCycleUs(times);
  ASSERT_DOUBLE_EQ(overlap_us, gpu_only_us + times.linear_us);
  const auto pipelined = [&](double cpu_rate) { return (gpu_tokens + cpu_rate * overlap_us) / overlap_us; };
  const double gpu_only = gpu_tokens / gpu_only_us;
  EXPECT_DOUBLE_EQ(gpu_only, 10);
  EXPECT_NEAR(pipelined(5), 14.1, 0.1);
  // Its sides are 77.5, 5.5 times what the cycle makes, and 100, ten times what gpu-only makes.
  EXPECT_FALSE(AsymmetricPaysForMixed(times));

  // It holds from T_m / T_gatt times the rate on that is enough.
  const double enough = gpu_tokens * times.linear_us / (gpu_only_us * overlap_us);
  EXPECT_NEAR(pipelined(enough), gpu_only, 1e-9);
  const double demanded = enough * gpu_only_us / times.gpu_attention_us;
  times.cpu_tokens_per_us = demanded * 1.001;
  EXPECT_TRUE(AsymmetricPaysForMixed(times));
  times.cpu_tokens_per_us = demanded * 0.999;
  EXPECT_FALSE(AsymmetricPaysForMixed(times));

  // Asynchronous overlap with a busy CPU: the same rate of the CPU, and the weights are read once.
  EXPECT_GT(gpu_only + times.cpu_tokens_per_us, pipelined(times.cpu_tokens_per_us));
}

// One prefilled token beside the decodes changes nothing but the inequality in use.
TEST(ApexModel, Inequality8DoesNotMeetInequality5) {
  ApexTimes times = Decodes(100, 50, 100, 100 / 7.4);
  EXPECT_EQ(ChooseStrategy(true, 0, 8, times), ApexChoice::kAsymmetric);
  times.prefill_linear_us = times.linear_us;
  ASSERT_DOUBLE_EQ(OverlapCycleUs(times), DecodeCycleUs(times));
  EXPECT_EQ(ChooseStrategy(true, 1, 8, times), ApexChoice::kAsynchronous);
  times.cpu_tokens_per_us = 100 / 2.51;
  EXPECT_FALSE(AsymmetricPaysForMixed(times));
  times.cpu_tokens_per_us = 100 / 2.49;
  EXPECT_TRUE(AsymmetricPaysForMixed(times));
}

TEST(ApexModel, ChoosesAsAlgorithms1And2) {
  const ApexTimes pays = Decodes(100, 100, 100, 50);
  const ApexTimes pays_not = Decodes(100, 100, 100, 5);
  EXPECT_EQ(ChooseStrategy(false, 3, 5, pays), ApexChoice::kGpuOnly);
  EXPECT_EQ(ChooseStrategy(true, 0, 0, pays), ApexChoice::kAsynchronous);
  EXPECT_EQ(ChooseStrategy(true, 0, 5, pays), ApexChoice::kAsymmetric);
  EXPECT_EQ(ChooseStrategy(true, 0, 5, pays_not), ApexChoice::kAsynchronous);
  EXPECT_EQ(ChooseStrategy(true, 2, 5, pays_not), ApexChoice::kAsynchronous);
  ApexTimes mixed = pays_not;
  mixed.prefill_linear_us = 2000;
  EXPECT_EQ(ChooseStrategy(true, 2, 5, mixed), ApexChoice::kAsymmetric);
  // Prefill alone on the GPU: there is no gpu decode to lose.
  const ApexTimes alone{.prefill_linear_us = 500, .cpu_tokens_per_us = 1};
  EXPECT_EQ(ChooseStrategy(true, 1, 5, alone), ApexChoice::kAsymmetric);
}

class ApexTimesTest : public ::testing::Test {
 protected:
  ApexTimesTest() {
    costs_.layers = 32;
    costs_.linear_us = 400;
    costs_.linear_token_us = 1;
    costs_.gpu_kv_ns = 5;
    costs_.prefill_ns = 1;
    costs_.cpu_us = 20;
    costs_.cpu_kv_ns = 50;
    costs_.exchange_us = 10;
    costs_.exchange_row_us = 0.5;
  }

  AnalyticCosts costs_;
};

TEST_F(ApexTimesTest, DecodesOnly) {
  const ApexTimes times = TimesFrom(
      {.gpu_decode_rows = 20, .gpu_kv_tokens = 20000, .main_cpu_rows = 2, .main_cpu_kv_tokens = 1000},
      costs_);
  EXPECT_EQ(times.linear_us, 400);
  EXPECT_EQ(times.gpu_attention_us, 100);
  EXPECT_EQ(times.prefill_linear_us, 0);
  EXPECT_EQ(times.gpu_tokens_per_us, 200);
  // Rows of 500 tokens take 30 + 25.5 us each: 34 of them fit into 900 us.
  EXPECT_DOUBLE_EQ(times.cpu_tokens_per_us, 34 * 500 / (30 + 34 * 25.5));
}

TEST_F(ApexTimesTest, PrefillMakesTheCycleLonger) {
  const IterationLoad load = {.prefill_tokens = 1000,
                              .prefill_attention_us = 200,
                              .gpu_decode_rows = 20,
                              .gpu_kv_tokens = 20000,
                              .cohort_rows = 1,
                              .cohort_kv_tokens = 500};
  const ApexTimes times = TimesFrom(load, costs_);
  EXPECT_EQ(times.prefill_linear_us, 1000);
  EXPECT_EQ(times.prefill_attention_us, 200);
  // 65 rows fit into 1700 us.
  EXPECT_DOUBLE_EQ(times.cpu_tokens_per_us, 65 * 500 / (30 + 65 * 25.5));
}

TEST_F(ApexTimesTest, ContextsAreTheGpuDecodesWithoutCpuDecodes) {
  const ApexTimes times = TimesFrom({.gpu_decode_rows = 10, .gpu_kv_tokens = 10000}, costs_);
  // 850 us hold 16 rows of 1000 tokens, 50.5 us each.
  EXPECT_DOUBLE_EQ(times.cpu_tokens_per_us, 16 * 1000 / (30 + 16 * 50.5));
}

TEST_F(ApexTimesTest, OneRowIsWeighedEvenIfItDoesNotFit) {
  const ApexTimes times = TimesFrom(
      {.gpu_decode_rows = 1, .gpu_kv_tokens = 10, .cohort_rows = 1, .cohort_kv_tokens = 100000}, costs_);
  EXPECT_DOUBLE_EQ(times.cpu_tokens_per_us, 100000 / 5030.5);
}

TEST_F(ApexTimesTest, NothingAtAll) {
  const ApexTimes times = TimesFrom({}, costs_);
  EXPECT_EQ(OverlapCycleUs(times), 0);
  EXPECT_EQ(times.gpu_tokens_per_us, 0);
  EXPECT_EQ(times.cpu_tokens_per_us, 0);
}

}  // namespace
}  // namespace tandem
