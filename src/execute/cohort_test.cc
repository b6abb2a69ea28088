#include "execute/cohort.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "execute/execute_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

class CohortPoolTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Cohort> Take(CohortPool* pool, int64_t num_rows) {
    return pool->Take(num_rows).value();
  }

  testing::ExecuteBench bench_;
};

TEST_F(CohortPoolTest, ACohortThatGrowsFindsTheMemoryOfTheOneBefore) {
  CohortPool pool(bench_.parts(), 64, 2);
  auto cohort = Take(&pool, 17);
  EXPECT_EQ(cohort->max_rows, 32);
  const Cohort* address = cohort.get();
  for (const int64_t num_rows : {18, 32, 1}) {
    pool.GiveBack(std::move(cohort));
    cohort = Take(&pool, num_rows);
    EXPECT_EQ(cohort.get(), address) << num_rows;
  }
  EXPECT_EQ(pool.num_rows_made(), 32);
}

TEST_F(CohortPoolTest, TakesTheSmallestThatHoldsTheRows) {
  CohortPool pool(bench_.parts(), 64, 3);
  auto large = Take(&pool, 64);
  auto small = Take(&pool, 3);
  EXPECT_EQ(small->max_rows, 16);
  const Cohort* small_address = small.get();
  pool.GiveBack(std::move(large));
  pool.GiveBack(std::move(small));
  EXPECT_EQ(Take(&pool, 16).get(), small_address);
}

TEST_F(CohortPoolTest, FillMakesTheUsualCohorts) {
  CohortPool pool(bench_.parts(), 60, 3);
  ASSERT_TRUE(pool.Fill(3).ok());
  EXPECT_EQ(pool.num_rows_made(), 3 * 32);
  for (int i = 0; i < 3; ++i) static_cast<void>(Take(&pool, 20));
  EXPECT_EQ(pool.num_rows_made(), 3 * 32);
}

// Small ones that nobody uses make room for a large one.
TEST_F(CohortPoolTest, StaysWithinItsMemoryWhereItCan) {
  CohortPool pool(bench_.parts(), 32, 1);  // 2 * 32 + 16 rows at most
  std::vector<std::unique_ptr<Cohort>> small;
  small.reserve(4);
  for (int i = 0; i < 4; ++i) small.push_back(Take(&pool, 16));
  EXPECT_EQ(pool.num_rows_made(), 64);
  for (auto& cohort : small) pool.GiveBack(std::move(cohort));
  EXPECT_EQ(Take(&pool, 32)->max_rows, 32);
  EXPECT_EQ(pool.num_rows_made(), 48 + 32);
}

TEST_F(CohortPoolTest, BeginTakesTheBlockTables) {
  CohortPool pool(bench_.parts(), 32, 1);
  auto cohort = Take(&pool, 2);
  const std::vector<RowSpan> rows = testing::CpuDecodes({{3, 7}, {4, 40}});
  std::vector<SpanInput> inputs = {testing::InputOf(rows[0], {5}), testing::InputOf(rows[1], {1, 2})};
  cohort->Begin(rows, inputs);
  EXPECT_EQ(cohort->rows, rows);
  EXPECT_EQ(cohort->cursor, kEntry);
  EXPECT_EQ(cohort->residual.rows, 2);
  EXPECT_EQ(cohort->cpu_rows->num_rows(), 2);
  for (const SpanInput& input : inputs) EXPECT_TRUE(input.block_table.empty());
  Stream& stream = bench_.parts().compute_stream();
  cohort->inputs.Upload(stream);
  stream.Synchronize();
  EXPECT_EQ(cohort->token_ids[0], 307);
  EXPECT_EQ(cohort->positions[1], 40);
}

TEST_F(CohortPoolTest, CursorsEndAtTheLastLayer) {
  Cohort cohort;
  std::vector<int64_t> cursors;
  for (int i = 0; i < 4; ++i) {
    cohort.Advance(3);
    cursors.push_back(cohort.cursor);
  }
  EXPECT_EQ(cursors, (std::vector<int64_t>{0, 1, 2, kEntry}));
}

}  // namespace
}  // namespace tandem
