#include "execute/riding_pass.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "execute/execute_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

// Cohorts that have entered, each at a layer.
class RidingPassTest : public ::testing::Test {
 protected:
  RidingPassTest()
      : pool_(bench_.parts(), 32, 3), riding_(RidingPass::Create(bench_.parts(), 16, 4).value()) {}

  Cohort* NewCohort(int64_t num_rows, int64_t cursor) {
    auto cohort = pool_.Take(num_rows).value();
    std::vector<RowSpan> rows;
    std::vector<SpanInput> inputs;
    for (int64_t i = 0; i < num_rows; ++i) {
      rows.push_back(testing::CpuDecode(static_cast<SequenceId>(i), 3));
      inputs.push_back(testing::InputOf(rows.back(), {static_cast<int32_t>(i)}));
    }
    cohort->Begin(rows, inputs);
    cohort->cursor = cursor;
    return cohorts_.emplace_back(std::move(cohort)).get();
  }

  testing::ExecuteBench bench_;
  CohortPool pool_;
  std::unique_ptr<RidingPass> riding_;
  std::vector<std::unique_ptr<Cohort>> cohorts_;
};

TEST_F(RidingPassTest, RowsStandAtTheBoundaryOfTheirLayer) {
  EXPECT_EQ(riding_->MostRows(), 0);
  riding_->Begin({{.step = 0, .cohort = NewCohort(3, 0)},
                  {.step = 1, .cohort = NewCohort(2, kEntry)},
                  {.step = 2, .cohort = NewCohort(2, 0)}});
  EXPECT_EQ(riding_->RowsAt(kEntry), 2);
  EXPECT_EQ(riding_->RowsAt(0), 5);
  EXPECT_EQ(riding_->RowsAt(1), 0);
  EXPECT_EQ(riding_->MostRows(), 5);
  EXPECT_EQ(riding_->MeanRows(), 3);  // 7 rows at 3 boundaries
  ASSERT_EQ(riding_->riders().size(), 3U);
  std::vector<size_t> steps;
  for (const Rider& rider : riding_->riders()) steps.push_back(rider.step);
  EXPECT_EQ(steps, (std::vector<size_t>{1, 0, 2}));
  bench_.parts().lanes->Synchronize();
  riding_->Clear();
  EXPECT_TRUE(riding_->riders().empty());
  EXPECT_EQ(riding_->MostRows(), 0);
}

// At the entry whoever rides joins; at a layer nobody whose attention is not done.
TEST_F(RidingPassTest, WhoJoinsGoesOn) {
  Cohort* enters = NewCohort(2, kEntry);
  Cohort* waits = NewCohort(1, 0);
  const SharedParts& parts = bench_.parts();
  parts.lanes->Begin();
  riding_->Begin({{.step = 0, .cohort = enters}, {.step = 1, .cohort = waits}});
  const RowBuffers buffers = RowBuffers::Allocate(parts.device, *parts.decoder, 4).value();
  IntInputs inputs = IntInputs::Allocate(parts.device, 4).value();
  RowBatch batch(buffers, 4);
  int32_t* positions = inputs.Add(std::vector<int32_t>(4, 0));
  for (int64_t boundary = kEntry; boundary < 2; ++boundary) {
    const int64_t next = boundary + 1 < 2 ? riding_->RowsAt(boundary + 1) : 0;
    riding_->Exchange(
        boundary, {.row_begin = 1, .here = riding_->RowsAt(boundary), .next = next, .positions = positions},
        batch);
    riding_->Await();
  }
  riding_->End();
  parts.lanes->Synchronize();
  std::vector<CohortOutcome> outcomes(2);
  riding_->Collect({}, &outcomes);
  EXPECT_EQ(outcomes[0].num_visits, 1);
  EXPECT_TRUE(outcomes[0].tokens.empty());
  EXPECT_EQ(outcomes[1].num_visits, 0);
  EXPECT_EQ(enters->cursor, 0);
  EXPECT_EQ(waits->cursor, 0);
  EXPECT_EQ(enters->cpu_rows->ready()->value(), enters->cpu_rows->ValueOf(0));
  EXPECT_TRUE(riding_->riders().empty());
}

}  // namespace
}  // namespace tandem
