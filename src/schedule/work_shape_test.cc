#include "schedule/work_shape.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace tandem {
namespace {

TEST(WorkShapeTest, IsUnknownUntilARequestEnds) {
  WorkShape shape;
  EXPECT_EQ(shape.prompt_tokens_per_output(), WorkShape::kUnknown);
  shape.CountOutput(50);
  EXPECT_EQ(shape.prompt_tokens_per_output(), WorkShape::kUnknown);
  shape.CountEnd(100);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 2, 0.05);
}

TEST(WorkShapeTest, ARequestWithoutOutputDoesNotDivideByZero) {
  WorkShape shape;
  shape.CountEnd(100);
  EXPECT_EQ(shape.prompt_tokens_per_output(), WorkShape::kUnknown);
}

TEST(WorkShapeTest, FollowsTheWork) {
  WorkShape shape;
  for (int i = 0; i < 1000; ++i) shape.CountEnd(1000, 100);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 10, 0.01);
  for (int i = 0; i < 500; ++i) shape.CountEnd(1000, 1000);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 1, 0.1);
}

// Outputs of 10 and 1,000 tokens, half of the requests each; 40 run at a time. All begin at once, and the
// short ones end first: they are no sign that prompts are most of the work.
TEST(WorkShapeTest, ABurstOfShortEndsIsNotTakenForTheWork) {
  constexpr int64_t kPrompt = 505;
  constexpr std::array<int64_t, 2> kOutputs = {10, 1000};
  struct Running {
    int64_t made = 0;
    int64_t output = 0;
  };
  std::vector<Running> running(40);
  size_t num_begun = 0;
  const auto begin = [&](Running* request) { *request = {0, kOutputs[num_begun++ % 2]}; };
  for (Running& request : running) begin(&request);
  WorkShape shape;
  double most = 0;
  for (int iteration = 0; iteration < 5000; ++iteration) {
    for (Running& request : running) {
      shape.CountOutput(1);
      if (++request.made < request.output) continue;
      shape.CountEnd(kPrompt);
      begin(&request);
    }
    if (iteration >= 20) most = std::max(most, shape.prompt_tokens_per_output());
  }
  // By what ended alone it would have been 50 until the first long one ended.
  EXPECT_LT(most, 20);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 1, 0.3);
}

}  // namespace
}  // namespace tandem
