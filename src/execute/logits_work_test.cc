// Which rows give logits, and how their tokens are drawn.

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "execute/logits_stage.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

TEST(LogitsWorkTest, TheLastRowOfAPromptDraws) {
  LogitsWork work;
  SpanInput input = {.sampling = SamplingInput{.temperature = 0.5F, .seed = 17, .output_tokens = {4, 5}}};
  work.AddSpan(8, testing::Chunk(1, 30, 3, true), input);
  ASSERT_EQ(work.row_indices, std::vector<int32_t>{10});
  const SampleRow& row = work.sample_rows.at(0);
  EXPECT_EQ(row.temperature, 0.5F);
  EXPECT_EQ(row.seed, 17U);
  EXPECT_EQ(row.position, 33U);
  EXPECT_EQ(row.forced_token, -1);
  EXPECT_EQ(row.output_tokens.size(), 2U);
  EXPECT_EQ(row.output_tokens.data(), input.sampling->output_tokens.data());

  LogitsWork none;
  none.AddSpan(8, testing::Chunk(1, 30, 3, false), {});
  EXPECT_TRUE(none.row_indices.empty());
}

// Each row sees the output up to its own token, and draws for the position behind it.
TEST(LogitsWorkTest, EveryRowOfADraftDraws) {
  LogitsWork work;
  RowSpan draft = testing::GpuDecode(1, 30);
  draft.num_tokens = 3;
  const SpanInput input = {.sampling = SamplingInput{.output_tokens = {70, 71, 1, 2}}};
  work.AddSpan(5, draft, input);
  EXPECT_EQ(work.row_indices, (std::vector<int32_t>{5, 6, 7}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(work.sample_rows[i].position, 31 + i);
    EXPECT_EQ(work.sample_rows[i].output_tokens.size(), 2 + i);
  }
  EXPECT_EQ(work.sample_rows[1].output_tokens.back(), 1);
}

// Where no penalty asks for them there are none to leave out.
TEST(LogitsWorkTest, DraftsWithoutOutputTokens) {
  LogitsWork work;
  RowSpan draft = testing::GpuDecode(1, 30);
  draft.num_tokens = 3;
  const SpanInput input = {.sampling = SamplingInput{}};
  work.AddSpan(0, draft, input);
  for (const SampleRow& row : work.sample_rows) EXPECT_TRUE(row.output_tokens.empty());
}

TEST(LogitsWorkTest, GivenTokensComeFirst) {
  LogitsWork work;
  const SpanInput input = {.sampling = SamplingInput{.num_top_logprobs = 5, .num_given_top_logprobs = 2},
                           .given_tokens = {41, 42}};
  work.AddSpan(0, RowSpan::Chunk(1, 10, 4, 11, Tier::kGpu), input);
  EXPECT_EQ(work.row_indices, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(work.sample_rows[0].forced_token, 41);
  EXPECT_EQ(work.sample_rows[1].forced_token, 42);
  EXPECT_EQ(work.sample_rows[1].num_top_logprobs, 2);
  EXPECT_EQ(work.sample_rows[2].forced_token, -1);
  EXPECT_EQ(work.sample_rows[2].num_top_logprobs, 5);
  EXPECT_EQ(work.sample_rows[2].position, 14U);
}

TEST(LogitsWorkDeathTest, SamplingIsThereWhereItIsWanted) {
  LogitsWork work;
  EXPECT_DEATH(work.AddSpan(0, testing::GpuDecode(6, 3), {}), "sequence 6: 1 rows give logits");
  SpanInput too_many = {.sampling = SamplingInput{}, .given_tokens = {1, 2}};
  EXPECT_DEATH(work.AddSpan(0, testing::GpuDecode(6, 3), too_many), "2 tokens behind them are given");
}

}  // namespace
}  // namespace tandem
