#include "planning/cpu_filling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "plan/plan_testing.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::IdsOf;
using testing::SmallMachine;

// Ten gpu decodes of 10 tokens: the cohort has T_l0 = 100 us, the main sub-batch's cpu rows have T_ga0 = 10
// us and beside a cohort T_l1 = 100 us.
class CpuFillingTest : public ::testing::Test {
 protected:
  static CpuRows Rows(std::initializer_list<int64_t> contexts) {
    CpuRows rows;
    SequenceId id = 0;
    for (const int64_t context : contexts) rows.Add(testing::CpuDecode(++id, context - 1));
    return rows;
  }
  static CpuRows AlikeRows(int64_t count) {
    CpuRows rows;
    for (SequenceId id = 1; id <= static_cast<SequenceId>(count); ++id) rows.Add(testing::CpuDecode(id, 9));
    return rows;
  }
  // Where each of the rows runs: c (cohort), m (main sub-batch) or . (not at all).
  static std::string Shown(const CpuFill& fill, const CpuRows& rows) {
    std::string shown(static_cast<size_t>(rows.size()), '.');
    for (size_t i = 0; i < fill.num_runs; ++i) {
      for (int64_t row = fill.runs[i].begin; row < fill.runs[i].end; ++row)
        shown[static_cast<size_t>(row)] = fill.runs[i].in_cohort ? 'c' : 'm';
    }
    return shown;
  }
  std::string Hidden(const CpuRows& rows, const FillLimits& limits) {
    return Shown(FillHiddenRows(rows, costs, limits, &load), rows);
  }
  std::string Split(const CpuRows& rows, int64_t num_rows, int64_t max_cohort_rows) {
    return Shown(SplitRows(rows, num_rows, costs, max_cohort_rows, 20, &load), rows);
  }

  AnalyticCosts costs = SmallMachine().costs;
  IterationLoad load = {.gpu_decode_rows = 10, .gpu_kv_tokens = 100, .num_sampled = 10};
};

TEST_F(CpuFillingTest, EachSubBatchIsFilledUpToWhatHidesIt) {
  EXPECT_EQ(Hidden(AlikeRows(24), {.max_rows = 100, .max_cohort_rows = 64}), "ccccccccccmmmmmmmmmmm...");
  EXPECT_EQ(load.cohort_rows, 10);
  EXPECT_EQ(load.cohort_kv_tokens, 100);
  EXPECT_EQ(load.main_cpu_rows, 11);
  EXPECT_EQ(load.main_cpu_kv_tokens, 110);
  EXPECT_EQ(load.num_sampled, 31);
}

// 1,600 tokens each, 1,024 of them in common, of which a further reader takes none: 1,600 + 5 * 576 us hide.
TEST_F(CpuFillingTest, RowsThatReadTogetherHideWithOthers) {
  costs.linear_us = 4500;
  costs.further_reader = 0;
  CpuRows rows;
  for (SequenceId id = 1; id <= 9; ++id) {
    RowSpan row = testing::CpuDecode(id, 1599);
    row.beginning = 7;
    row.num_shared = id == 1 ? 0 : 1024;
    rows.Add(row);
  }
  EXPECT_EQ(Hidden(rows, {.max_rows = 100, .max_cohort_rows = 64}), "ccccccmmm");
  EXPECT_EQ(load.cohort_kv_tokens, 1600 + 5 * 576);
  EXPECT_EQ(load.main_cpu_kv_tokens, 1600 + 2 * 576);
}

TEST_F(CpuFillingTest, OneSubBatchHidesBehindAttentionAlone) {
  EXPECT_EQ(Hidden(AlikeRows(4), {.max_rows = 100}), "m...");
}

TEST_F(CpuFillingTest, LimitsOfRows) {
  EXPECT_EQ(Hidden(AlikeRows(12), {.max_rows = 7, .max_cohort_rows = 4}), "ccccmmm.....");
}

TEST_F(CpuFillingTest, RowsThatAreTooLongArePassedOver) {
  const CpuRows rows = Rows({500, 10, 10, 600, 10});
  const FillLimits limits = {.max_rows = 100, .max_cohort_rows = 64};
  const IterationLoad without = load;
  EXPECT_EQ(Hidden(rows, limits), ".....");
  load = without;
  EXPECT_EQ(Hidden(rows, {.max_rows = 100, .max_cohort_rows = 64, .max_skips = 1}), ".cc..");
  load = without;
  EXPECT_EQ(Hidden(rows, {.max_rows = 100, .max_cohort_rows = 64, .max_skips = 2}), ".cc.c");
}

// A row of 500 tokens takes 100 + 500 us in the main sub-batch, 500 + 110 us in the cohort. Beside 290 prompt
// tokens it is 300 + 500 us and 500 + 110 us.
TEST_F(CpuFillingTest, TheOldestMayBeForcedWhereItShowsLess) {
  const CpuRows rows = Rows({500, 10});
  const FillLimits limits = {.max_rows = 100, .max_cohort_rows = 64, .force_oldest = true};
  const IterationLoad without = load;
  EXPECT_EQ(Hidden(rows, limits).front(), 'm');
  load = without;
  load.prefill_tokens = 290;
  EXPECT_EQ(Hidden(rows, limits).front(), 'c');
}

// A cut at 10 hides both: 100 + 110 us.
TEST_F(CpuFillingTest, SplitsWhereALayerTakesLeastTime) {
  EXPECT_EQ(Split(AlikeRows(21), 20, 64), "ccccccccccmmmmmmmmmm.");
  EXPECT_EQ(load.cohort_rows, 10);
  load = {.gpu_decode_rows = 10, .gpu_kv_tokens = 100};
  EXPECT_EQ(Split(AlikeRows(20), 20, 5), "cccccmmmmmmmmmmmmmmm");
  load = {.gpu_decode_rows = 10, .gpu_kv_tokens = 100};
  EXPECT_EQ(Split(AlikeRows(20), 20, 0), "mmmmmmmmmmmmmmmmmmmm");
  load = {};
  EXPECT_EQ(Split(AlikeRows(1), 1, 64), "m") << "the main sub-batch is never empty";
}

TEST_F(CpuFillingTest, HalvesByTheTokensThatAreRead) {
  const auto halved = [&](const CpuRows& rows, int64_t num_rows, int64_t max_cohort_rows) {
    return Shown(HalveRows(rows, num_rows, costs, max_cohort_rows, &load), rows);
  };
  EXPECT_EQ(halved(Rows({30, 10, 10, 10}), 4, 64), "cmmm");
  EXPECT_EQ(halved(Rows({10, 10, 10, 30}), 4, 64), "cccm");
  EXPECT_EQ(halved(Rows({10, 10, 10, 30}), 4, 2), "ccmm");
  EXPECT_EQ(halved(Rows({10, 10, 10, 30}), 3, 64), "cmm.");
}

TEST_F(CpuFillingTest, IsWrittenAsRowsOfTheMainSubBatchAndACohortThatPassesAllLayers) {
  const CpuRows rows = AlikeRows(5);
  CpuFill fill;
  EXPECT_FALSE(fill.has_oldest());
  fill.Add(0, 2, true);
  fill.Add(2, 3, false);
  fill.Add(4, 5, true);
  EXPECT_TRUE(fill.has_oldest());
  IterationPlan plan;
  plan.main.spans = {testing::GpuDecode(9, 9)};
  WriteRows(rows, fill, 2, 6, &plan);
  EXPECT_THAT(IdsOf(plan.main.spans), ElementsAre(9, 3));
  ASSERT_EQ(plan.cohorts.size(), 1U);
  EXPECT_EQ(plan.cohorts[0].cohort, 6U);
  EXPECT_THAT(IdsOf(plan.cohorts[0].rows), ElementsAre(1, 2, 5));
  EXPECT_THAT(plan.cohorts[0].visits, ElementsAre(Visit{-1, -1}, Visit{0, 0}, Visit{1, 1}));
}

}  // namespace
}  // namespace tandem
