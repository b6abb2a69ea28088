#include "engine/iteration_inputs.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/requests_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::MakeBooks;
using testing::MakeRequest;

constexpr int64_t kNumLayers = 4;

class IterationInputsTest : public ::testing::Test {
 protected:
  // Prompt tokens are 100, 101, ..., output tokens 500, 501, ...; blocks for all of them.
  Request& Add(RequestId id, int64_t prompt_len, int64_t num_output, Tier tier = Tier::kGpu) {
    auto request = MakeRequest(id, prompt_len);
    for (int64_t i = 0; i < num_output; ++i) request->output_tokens.push_back(static_cast<int32_t>(500 + i));
    EXPECT_TRUE(kv_->Reserve(id, tier, request->num_tokens()));
    return *(requests_[id] = std::move(request));
  }
  IterationInput Make(IterationPlan plan) const {
    return MakeIterationInput(std::move(plan), {}, *kv_, kNumLayers,
                              [this](SequenceId id) -> const Request& { return *requests_.at(id); });
  }
  SpanInput MakeOne(const RowSpan& span) const {
    IterationPlan plan;
    plan.main.spans = {span};
    return Make(std::move(plan)).main.at(0);
  }

  std::unique_ptr<KvBooks> kv_ = MakeBooks(16, 16);
  std::map<SequenceId, std::unique_ptr<Request>> requests_;
};

TEST_F(IterationInputsTest, AChunkBringsItsTokensAndTheBlocksUpToItsEnd) {
  Add(1, 10, 0);
  const SpanInput first = MakeOne(Chunk(1, 0, 6, false));
  EXPECT_EQ(first.token_ids, (std::vector<int32_t>{100, 101, 102, 103, 104, 105}));
  EXPECT_FALSE(first.sampling.has_value());
  const std::vector<int32_t>& table = kv_->block_table(1);
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(first.block_table, (std::vector<int32_t>{table[0], table[1]}));
  const SpanInput last = MakeOne(Chunk(1, 6, 4, true));
  EXPECT_EQ(last.token_ids.front(), 106);
  EXPECT_EQ(last.block_table, table);
  ASSERT_TRUE(last.sampling.has_value());
  EXPECT_TRUE(last.given_tokens.empty());
}

TEST_F(IterationInputsTest, ADecodeBringsTheTokenThatWasDrawnLast) {
  Add(1, 3, 2);
  const SpanInput decode = MakeOne(GpuDecode(1, 4));
  EXPECT_EQ(decode.token_ids, std::vector<int32_t>{501});
  EXPECT_EQ(decode.block_table, kv_->block_table(1));
  EXPECT_TRUE(decode.sampling.has_value());
}

TEST_F(IterationInputsTest, PlansAndMovesGoAlong) {
  Add(1, 3, 1, Tier::kCpu);
  IterationPlan plan;
  plan.iteration = 9;
  plan.main.spans = {CpuDecode(1, 3)};
  const BlockMove move{.sequence = 1, .to = Tier::kCpu, .source_blocks = {4}, .destination_blocks = {5}};
  const IterationInput input = MakeIterationInput(
      plan, {move}, *kv_, kNumLayers, [this](SequenceId id) -> const Request& { return *requests_.at(id); });
  EXPECT_EQ(input.plan.iteration, 9U);
  EXPECT_EQ(input.plan.main, plan.main);
  ASSERT_EQ(input.moves.size(), 1U);
  EXPECT_EQ(input.moves[0].destination_blocks, std::vector<int32_t>{5});
}

TEST_F(IterationInputsTest, EchoGivesTheTokensThatAreKnownToFollow) {
  Request& request = Add(1, 6, 0);
  EXPECT_EQ(EchoFrom(request), std::nullopt);
  request.sampling.num_prompt_top_logprobs = 2;
  EXPECT_EQ(EchoFrom(request), 0);
  const SpanInput chunk = MakeOne(RowSpan::Chunk(1, 0, 3, 0, Tier::kGpu));
  EXPECT_EQ(chunk.given_tokens, (std::vector<int32_t>{101, 102, 103}));
  EXPECT_EQ(chunk.sampling->num_given_top_logprobs, 2);
  request.num_reported_prompt_logprobs = 3;
  EXPECT_EQ(EchoFrom(request), 3);
  // Behind the last token of the prompt one is drawn.
  EXPECT_EQ(MakeOne(RowSpan::Chunk(1, 3, 3, 3, Tier::kGpu)).given_tokens, (std::vector<int32_t>{104, 105}));
  request.num_reported_prompt_logprobs = 5;
  EXPECT_EQ(EchoFrom(request), std::nullopt);
}

TEST_F(IterationInputsTest, TokensGoAlongOnlyWhereAPenaltyCountsThem) {
  Request& request = Add(1, 3, 2);
  EXPECT_TRUE(MakeOne(GpuDecode(1, 4)).sampling->output_tokens.empty());
  request.sampling.presence_penalty = 0.5F;
  SamplingInput sampling = *MakeOne(GpuDecode(1, 4)).sampling;
  EXPECT_EQ(sampling.output_tokens, (std::vector<int32_t>{500, 501}));
  EXPECT_TRUE(sampling.prompt_tokens.empty());
  request.sampling.presence_penalty = 0;
  request.sampling.repetition_penalty = 1.2F;
  sampling = *MakeOne(GpuDecode(1, 4)).sampling;
  EXPECT_EQ(sampling.output_tokens, (std::vector<int32_t>{500, 501}));
  EXPECT_EQ(sampling.prompt_tokens, (std::vector<int32_t>{100, 101, 102}));
}

TEST_F(IterationInputsTest, EndTokensAreBannedBeforeMinTokens) {
  Request& request = Add(1, 3, 2);
  request.end_tokens = {2, 50};
  request.sampling.min_tokens = 2;
  EXPECT_TRUE(MakeOne(GpuDecode(1, 4)).sampling->banned_tokens.empty());
  request.sampling.min_tokens = 3;
  EXPECT_EQ(MakeOne(GpuDecode(1, 4)).sampling->banned_tokens, request.end_tokens);
}

// Between the layers a cohort needs nothing that the device does not have already.
TEST_F(IterationInputsTest, CohortsBringRowsWhereTheyEnterOrEnd) {
  Add(1, 3, 1, Tier::kCpu);
  const auto rides = [](int64_t layer) {
    IterationPlan plan;
    plan.cohorts = {{.cohort = 1,
                     .rows = CpuDecodes({{1, 3}}),
                     .cursor = layer,
                     .visits = {{layer, layer}},
                     .rides = true}};
    return plan;
  };
  const IterationInput enters = Make(rides(kEntry));
  ASSERT_EQ(enters.cohorts.at(0).size(), 1U);
  EXPECT_EQ(enters.cohorts[0][0].token_ids, std::vector<int32_t>{500});
  EXPECT_EQ(enters.cohorts[0][0].block_table, kv_->block_table(1));
  EXPECT_TRUE(Make(rides(1)).cohorts.at(0).empty());
  const IterationInput ends = Make(rides(kNumLayers - 1));
  ASSERT_EQ(ends.cohorts.at(0).size(), 1U);
  EXPECT_TRUE(ends.cohorts[0][0].sampling.has_value());
}

TEST_F(IterationInputsTest, NobodyWritesToABlockThatOthersShare) {
  Add(1, 8, 1);
  auto other = MakeRequest(2, 9);
  kv_->ShareBlocks(1, 2, 8, 8);
  requests_[2] = std::move(other);
  ASSERT_TRUE(kv_->Reserve(2, Tier::kGpu, 9));
  EXPECT_EQ(MakeOne(Chunk(2, 8, 1, true)).block_table.size(), 3U);
  EXPECT_DEATH(MakeOne(Chunk(2, 4, 5, true)), "");
}

}  // namespace
}  // namespace tandem
