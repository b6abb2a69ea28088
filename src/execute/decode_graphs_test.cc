#include "execute/decode_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem {
namespace {

std::vector<std::pair<int64_t, int64_t>> Shapes(const ExecutorOptions& options) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const GraphShape& shape : GraphShapesOf(options))
    shapes.emplace_back(shape.num_rows, shape.num_rider_rows);
  std::sort(shapes.begin(), shapes.end());
  return shapes;
}

TEST(GraphShapesTest, WithRidersWhereTheSumIsKnownOrTheLargest) {
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  ExecutorOptions options = {.max_rows = 64, .graph_batch_sizes = {8, 16, 24}, .graph_rider_rows = {8, 48}};
  EXPECT_EQ(Shapes(options.Complete(true)), (Pairs{{8, 0}, {16, 0}, {24, 0}}));
  options.max_rider_rows = 48;
  EXPECT_EQ(Shapes(options.Complete(true)),
            (Pairs{{8, 0}, {8, 8}, {16, 0}, {16, 8}, {24, 0}, {24, 8}, {24, 48}}));
  // Nobody rides without a cpu tier.
  EXPECT_EQ(Shapes(options.Complete(false)), (Pairs{{8, 0}, {16, 0}, {24, 0}}));
}

TEST(ExecutorOptionsTest, CompleteReplacesTheZeros) {
  const ExecutorOptions few = ExecutorOptions{.max_rows = 7, .max_rider_rows = 2}.Complete(true);
  EXPECT_EQ(few.max_cpu_rows, 7);
  EXPECT_EQ(few.max_flight_rows, 7);
  EXPECT_EQ(few.max_rider_rows, 2);
  const ExecutorOptions all =
      ExecutorOptions{.max_rows = 7, .max_cpu_rows = 3, .max_flight_rows = 9}.Complete(true);
  EXPECT_EQ(all.max_cpu_rows, 3);
  EXPECT_EQ(all.max_flight_rows, 9);
}

}  // namespace
}  // namespace tandem
