// What rows read that begin alike, in tokens of rows that read their own.
#include "perf/shared_reads.h"

#include <gtest/gtest.h>

#include "perf/analytic_costs.h"
#include "perf/cost_table.h"
#include "perf/steady_times.h"
#include "perf/time_model.h"

namespace tandem {
namespace {

// A further reader takes a quarter of a read.
AnalyticCosts Costs() {
  AnalyticCosts costs;
  costs.layers = 4;
  costs.cpu_kv_ns = 1000;
  costs.further_reader = 0.25;
  return costs;
}

// At position 1,999: it attends 2,000 tokens.
RowSpan Row(SequenceId id, uint64_t beginning, int64_t num_shared) {
  RowSpan row = RowSpan::Decode(id, 1999, Tier::kCpu);
  row.beginning = beginning;
  row.num_shared = num_shared;
  return row;
}

std::vector<RowSpan> Alike(int64_t num_rows) {
  std::vector<RowSpan> rows;
  for (int64_t i = 0; i < num_rows; ++i)
    rows.push_back(Row(static_cast<SequenceId>(i), 7, i == 0 ? 0 : 1024));
  return rows;
}

TEST(SharedReads, RowsOfNoCommonBeginningReadTheirOwn) {
  EXPECT_EQ(ReadTokensOf({Row(1, 0, 0), Row(2, 0, 0), Row(3, 5, 0)}, Costs()), 6000);
  EXPECT_EQ(ReadTokensOf(Alike(8), AnalyticCosts()), 16000) << "where nothing is gained";
}

TEST(SharedReads, FurtherReadersTakeAPartOfWhatTheyShare) {
  EXPECT_EQ(ReadTokensOf(Alike(1), Costs()), 2000);
  EXPECT_EQ(ReadTokensOf(Alike(2), Costs()), 2000 + 976 + 256);
  EXPECT_EQ(ReadTokensOf(Alike(8), Costs()), 2000 + 7 * (976 + 256));
  // The ninth begins the next read.
  EXPECT_EQ(ReadTokensOf(Alike(10), Costs()), 2 * 2000 + 8 * (976 + 256));
}

TEST(SharedReads, BeginningsAreToldApartWhereverTheirRowsAre) {
  EXPECT_EQ(ReadTokensOf({Row(1, 7, 0), Row(2, 9, 0), Row(3, 7, 1024), Row(4, 9, 512)}, Costs()),
            2 * 2000 + (976 + 256) + (1488 + 128));
}

TEST(SharedReads, ReadsOfManyRows) {
  EXPECT_DOUBLE_EQ(ReadsForRows(0, Costs()), 0);
  EXPECT_DOUBLE_EQ(ReadsForRows(1, Costs()), 1);
  EXPECT_DOUBLE_EQ(ReadsForRows(8, Costs()), 2.75);
  EXPECT_DOUBLE_EQ(ReadsForRows(17, Costs()), 2 * 2.75 + 1);
}

// A plan's rows, main sub-batch, cohort and riders apart: who is in another task shares nothing.
TEST(SharedReads, PlansArePricedByWhatTheirTasksRead) {
  const AnalyticCosts costs = Costs();
  const TimeModel time(costs);
  IterationPlan plan;
  plan.main.spans = Alike(2);
  plan.cohorts.push_back({.cohort = 0, .rows = Alike(3), .visits = {}});
  for (int64_t layer = kEntry; layer < 4; ++layer) plan.cohorts[0].visits.push_back({layer, layer});
  plan.cohorts.push_back({.cohort = 1, .rows = Alike(4), .cursor = 1, .visits = {{1, 1}}, .rides = true});
  const IterationLoad load = time.LoadOf(plan);
  EXPECT_EQ(load.main_cpu_kv_tokens, 2000 + 1232);
  EXPECT_EQ(load.cohort_kv_tokens, 2000 + 2 * 1232);
  EXPECT_EQ(load.rider_kv_tokens, 2000 + 3 * 1232);
  EXPECT_EQ(time.RiderWorkOf(plan.cohorts[1]).kv_tokens, 2000 + 3 * 1232);
}

CostMeasurements Measured(const std::vector<CostPoint>& shared_reads) {
  return {.num_layers = 1,
          .linear = {{1, 1}},
          .gpu_decode_attention = {{1, {{64, 1}}}},
          .prefill_attention = {{1, {{1, 1}}}},
          .outside_layers = {{0, 1}},
          .cpu_attention = {{1, {{64, 1}}}},
          .shared_reads = shared_reads,
          .exchange = {{1, 1}},
          .swap = {{1, 1}}};
}

TEST(SharedReads, AreTakenFromWhatTheSameRowsTookInGroups) {
  const CostTable table = CostTable::Create(Measured({{1, 800}, {2, 440}, {4, 280}, {8, 200}})).value();
  EXPECT_DOUBLE_EQ(table.SharedReadCost(1), 1);
  EXPECT_DOUBLE_EQ(table.SharedReadCost(2), 1.1);
  EXPECT_DOUBLE_EQ(table.SharedReadCost(3), 1.25);
  EXPECT_DOUBLE_EQ(table.SharedReadCost(4), 1.4);
  EXPECT_DOUBLE_EQ(table.SharedReadCost(8), 2);
}

TEST(SharedReads, NeverTakeMoreThanReadsApartNorLessForMoreRows) {
  const CostTable slow = CostTable::Create(Measured({{1, 800}, {2, 900}, {4, 100}, {8, 40}})).value();
  EXPECT_DOUBLE_EQ(slow.SharedReadCost(2), 2);
  EXPECT_DOUBLE_EQ(slow.SharedReadCost(4), 2);
  EXPECT_DOUBLE_EQ(slow.SharedReadCost(8), 2);
  const CostTable few = CostTable::Create(Measured({{1, 800}, {2, 440}})).value();
  EXPECT_DOUBLE_EQ(few.SharedReadCost(4), 3.1) << "beyond what was measured nothing is gained";
  const CostTable none = CostTable::Create(Measured({})).value();
  EXPECT_DOUBLE_EQ(none.SharedReadCost(8), 8);
  EXPECT_FALSE(CostTable::Create(Measured({{2, 440}})).ok());
}

// 8 rows of 2,000 tokens, 1,024 of them in common: 2.75 reads of these.
TEST(SharedReads, ASteadyStateReadsThemOnce) {
  AnalyticCosts costs = Costs();
  costs.layers = 1;
  const IdealTimes ideal({.mean_context = 2000, .mean_shared = 1024}, costs);
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0, 8), 8 * 976 + 2.75 * 1024);
  EXPECT_DOUBLE_EQ(ideal.IterationUs(0, 12), 12 * 976 + 1.5 * 2.75 * 1024);
  EXPECT_DOUBLE_EQ(IdealTimes({.mean_context = 2000}, costs).IterationUs(0, 8), 16000);
  const SteadyMix mix{.mean_context = 2000, .mean_shared = 1024};
  EXPECT_DOUBLE_EQ(SteadyTimes(mix, costs).Asymmetric(8).iteration_us, 8 * 976 + 2.75 * 1024);
}

}  // namespace
}  // namespace tandem
