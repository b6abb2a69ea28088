#include "planning/work_shape.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(WorkShapeTest, IsUnknownUntilARequestEnds) {
  WorkShape shape;
  EXPECT_EQ(shape.prompt_tokens_per_output(), WorkShape::kUnknown);
  EXPECT_EQ(shape.mean_output_tokens(), 0);
  EXPECT_EQ(shape.mean_context(), 0);
  shape.CountEnd(100, 100, 50);
  EXPECT_DOUBLE_EQ(shape.prompt_tokens_per_output(), 2);
  EXPECT_DOUBLE_EQ(shape.mean_output_tokens(), 50);
  EXPECT_DOUBLE_EQ(shape.mean_context(), 125);
}

TEST(WorkShapeTest, ARequestWithoutOutputDoesNotDivideByZero) {
  WorkShape shape;
  shape.CountEnd(100, 100, 0);
  EXPECT_EQ(shape.prompt_tokens_per_output(), WorkShape::kUnknown);
  EXPECT_EQ(shape.mean_context(), 0);
}

// Tokens count, not requests: a few long prompts are most of the work.
TEST(WorkShapeTest, WeighsByTokens) {
  WorkShape shape;
  for (int i = 0; i < 1000; ++i) {
    shape.CountEnd(10, 10, 100);
    shape.CountEnd(1990, 1990, 100);
  }
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 10, 0.2);
  EXPECT_NEAR(shape.mean_context(), 1050, 10);
}

// Most tokens are read by long outputs.
TEST(WorkShapeTest, ContextsAreThoseOfTokens) {
  WorkShape shape;
  for (int i = 0; i < 1000; ++i) {
    shape.CountEnd(100, 100, 100);
    shape.CountEnd(100, 100, 900);
  }
  EXPECT_NEAR(shape.mean_context(), 0.1 * 150 + 0.9 * 550, 5);
}

TEST(WorkShapeTest, FollowsTheWork) {
  WorkShape shape;
  EXPECT_EQ(shape.cached_share(), 0);
  for (int i = 0; i < 1000; ++i) shape.CountEnd(1000, 1000, 100);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 10, 0.01);
  for (int i = 0; i < 500; ++i) shape.CountEnd(1000, 1000, 1000);
  EXPECT_NEAR(shape.prompt_tokens_per_output(), 1, 0.1);
  EXPECT_NEAR(shape.mean_output_tokens(), 1000, 10);
  EXPECT_NEAR(shape.mean_context(), 1500, 10);
}

TEST(WorkShapeTest, CachedTokensAreContextAndNoWork) {
  WorkShape shape;
  shape.CountEnd(100, 20, 10);
  EXPECT_DOUBLE_EQ(shape.prompt_tokens_per_output(), 2);
  EXPECT_DOUBLE_EQ(shape.mean_context(), 105);
  EXPECT_DOUBLE_EQ(shape.cached_share(), 0.8);
}

}  // namespace
}  // namespace tandem
