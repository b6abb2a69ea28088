#include "planning/operating_point.h"

#include <gtest/gtest.h>

#include "planning/planning_testing.h"

namespace tandem {
namespace {

using testing::SmallMachine;

// 10 rows of 10 tokens fill the gpu tier, without prompts. In a layer, with c rows in the cpu tier:
//
//   one sub-batch    T_l = 100, then T_ga = 10 beside T_ca = 10 c        110, from the second row on 100 + 10
//   c two sub-batches  T_l = 100, then T_l + T_ga = 110                    210, while 10 + 11 rows hide
//
// so X(0) = 10 / 220, X(1) = 11 / 220 and the best is X(21) = 31 / 420.
class OperatingPointTest : public ::testing::Test {
 protected:
  OperatingPointTest() {
    work.prompt_tokens_per_output = 0;
    work.mean_context = 10;
    work.mean_prompt = 10;
    work.gpu_rows = 10;
    work.num_cohorts = 3;
    work.max_cpu_rows = 50;
    work.max_rows = 1000;
    tuning.next_rows = 1;
    tuning.nearly_best = 1;
  }
  OperatingPoint Find(Overlap overlap = Overlap::kAsymmetric) const {
    return FindOperatingPoint(work, overlap, costs, tuning);
  }

  AnalyticCosts costs = SmallMachine().costs;
  SteadyWork work;
  PlannerTuning tuning;
};

TEST_F(OperatingPointTest, IsTheFewestRowsThatReachNearlyTheBestRate) {
  OperatingPoint point = Find();
  EXPECT_EQ(point.cpu_rows, 21);
  EXPECT_DOUBLE_EQ(point.iteration_us, 420);
  EXPECT_DOUBLE_EQ(point.rate, 31 / 420.0);
  tuning.nearly_best = 0.95;  // X(20) is 97 % of the best, X(19) 93.5 %
  EXPECT_EQ(Find().cpu_rows, 20);
}

// X(21) is 1.62 times X(0), X(1) 1.1 times. Of n requests 21 are to be brought in: the tier is full for the
// time of n - 21.
TEST_F(OperatingPointTest, RowsThatAreToBeBroughtInCountForTheRestOfTheWork) {
  work.num_requests = 1000;
  work.num_waiting = 990;
  EXPECT_EQ(Find().cpu_rows, 21);
  work.num_requests = 25;
  work.num_waiting = 24;
  EXPECT_LT(Find().cpu_rows, 21);
  work.num_waiting = 0;
  EXPECT_EQ(Find().cpu_rows, 21) << "who comes later brings work of its own";
  work.num_waiting = 24;
  work.present_cpu_rows = 20;
  EXPECT_EQ(Find().cpu_rows, 21) << "they are there";
  work.present_cpu_rows = 0;
  EXPECT_EQ(Find(Overlap::kAsynchronous).cpu_rows, 33) << "riding has its price where it is chosen";
  work.gpu_rows = 0;
  EXPECT_GT(Find().cpu_rows, 10) << "nobody decodes elsewhere";
}

// With one row in the gpu tier, X(c) = (1 + c) / T rises up to 21 rows, the last of them by little.
TEST_F(OperatingPointTest, MostOfThoseThatAreThereStayTheTargetWhereFewerWouldDo) {
  work.gpu_rows = 1;
  tuning.nearly_best = 0.85;
  tuning.kept_of_present = 0.5;
  const int64_t fewest = Find().cpu_rows;
  ASSERT_LT(fewest, 20);
  work.present_cpu_rows = 2 * 20;
  EXPECT_EQ(Find().cpu_rows, 20) << "half of 40";
  work.present_cpu_rows = 2 * (fewest - 1);
  EXPECT_EQ(Find().cpu_rows, fewest) << "too few are there";
  tuning.nearly_best = 1;
  work.present_cpu_rows = 2 * 40;
  EXPECT_EQ(Find().cpu_rows, 21) << "further ones make less";
  tuning.nearly_best = 0.85;
  work.gpu_rows = 10;
  EXPECT_LT(Find().cpu_rows, 20) << "the gpu tier has as many";
}

// 33 rows in three cohorts of 11: two layers' attention of 110 us each takes the CPU as long as the
// iteration, 220 us. Each row makes a third of a token.
TEST_F(OperatingPointTest, RidingRowsHaveAWholeIterationForALayer) {
  const OperatingPoint point = Find(Overlap::kAsynchronous);
  EXPECT_EQ(point.cpu_rows, 33);
  EXPECT_DOUBLE_EQ(point.iteration_us, 220);
  EXPECT_DOUBLE_EQ(point.rate, 21 / 220.0);
}

TEST_F(OperatingPointTest, RowsThatDoNotRideShareThoseOfTheIteration) {
  work.max_rows = 25;
  EXPECT_EQ(Find().cpu_rows, 15);
  EXPECT_EQ(Find(Overlap::kAsynchronous).cpu_rows, 33);
  work.max_cpu_rows = 14.5;
  EXPECT_EQ(Find().cpu_rows, 14);
  EXPECT_EQ(Find(Overlap::kAsynchronous).cpu_rows, 14);
}

TEST_F(OperatingPointTest, AnIterationTakesNoLongerThanItsLimit) {
  work.max_iteration_us = 420;
  EXPECT_EQ(Find().cpu_rows, 21);
  work.max_iteration_us = 419;
  EXPECT_LE(Find().cpu_rows, 10);
  EXPECT_NEAR(Find().rate, 11 / 220.0, 1e-12);
  work.max_iteration_us = 100;  // the gpu tier's decodes alone take longer
  EXPECT_EQ(Find().cpu_rows, 0);
}

TEST_F(OperatingPointTest, RowsMustBeWorthItUnlessHalfOfThemAreThere) {
  tuning.worth_splitting = 1.6;  // X(21) / X(0) is 1.62
  EXPECT_EQ(Find().cpu_rows, 21);
  tuning.worth_splitting = 1.7;
  EXPECT_EQ(Find().cpu_rows, 0);
  EXPECT_DOUBLE_EQ(Find().rate, 10 / 220.0);
  work.present_cpu_rows = 10;
  EXPECT_EQ(Find().cpu_rows, 0);
  work.present_cpu_rows = 11;
  EXPECT_EQ(Find().cpu_rows, 21);
  // Nothing to compare with where the gpu tier decodes nothing.
  work.present_cpu_rows = 0;
  work.gpu_rows = 0;
  EXPECT_EQ(Find().cpu_rows, 20);
}

TEST_F(OperatingPointTest, ASlowCpuIsOfNoUse) {
  costs.cpu_kv_ns = 100e3;  // a row takes 1000 us
  EXPECT_EQ(Find().cpu_rows, 0);
  work.gpu_rows = 0;
  work.max_cpu_rows = 0;
  const OperatingPoint nothing = Find();
  EXPECT_EQ(nothing.cpu_rows, 0);
  EXPECT_EQ(nothing.rate, 0);
  EXPECT_EQ(nothing.decoded_token_us, nothing.prefilled_token_us);
}

// A prompt token takes 1 us in each of two layers.
TEST_F(OperatingPointTest, TokensAreWorthTheTimeThatTheyStandFor) {
  work.prompt_tokens_per_output = 2;
  const OperatingPoint point = Find();
  EXPECT_DOUBLE_EQ(point.prefilled_token_us, 2);
  EXPECT_DOUBLE_EQ(point.decoded_token_us + 2 * point.prefilled_token_us, 1 / point.rate);
  EXPECT_DOUBLE_EQ(DecodedTokenUs(work, 2, 0.1), 6);
  EXPECT_DOUBLE_EQ(DecodedTokenUs(work, 2, 1), 2) << "no less than a prefilled one";
}

TEST_F(OperatingPointTest, RatesOfAnyNumberOfRows) {
  EXPECT_DOUBLE_EQ(SteadyRate(work, 1, Overlap::kAsymmetric, costs), 11 / 220.0);
  EXPECT_DOUBLE_EQ(SteadyRate(work, 3, Overlap::kAsynchronous, costs), 11 / 220.0);
  work.gpu_rows = 0;
  EXPECT_EQ(SteadyRate(work, 0, Overlap::kAsymmetric, costs), 0);
}

}  // namespace
}  // namespace tandem
