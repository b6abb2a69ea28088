#include "engine/iteration_inputs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/token_mask.h"
#include "device/host/host_device.h"
#include "engine/request_books_testing.h"
#include "plan/plan_testing.h"
#include "request/grammar_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::MainPlan;
using testing::MakeRequest;

constexpr int64_t kVocabSize = 2000;

// count tokens from first on.
std::vector<int32_t> Tokens(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Blocks of 4 tokens, three layers. Request i has prompt tokens 100 * i, 100 * i + 1, ...
class IterationInputsTest : public ::testing::Test {
 protected:
  Request& Add(SequenceId id, int64_t prompt_len, Tier tier, std::vector<int32_t> output = {}) {
    Request& request = *requests_.emplace(id, MakeRequest(id, prompt_len)).first->second;
    request.output_tokens = std::move(output);
    EXPECT_TRUE(kv_->Reserve(id, tier, request.num_tokens()));
    return request;
  }
  IterationInput Make(IterationPlan plan, std::vector<BlockMove> moves = {}) const {
    return MakeIterationInput(
        std::move(plan), std::move(moves), *kv_, 3,
        [this](SequenceId id) -> const Request& { return *requests_.at(id); }, masks_.get());
  }
  SpanInput InputOf(const RowSpan& span) const { return Make(MainPlan({span})).main.at(0); }
  // The blocks that the first tokens of a sequence lie in.
  std::vector<int32_t> Table(SequenceId id, std::ptrdiff_t num_blocks) const {
    const std::vector<int32_t>& all = kv_->block_table(id);
    return {all.begin(), all.begin() + num_blocks};
  }

  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::unique_ptr<GrammarMasks> masks_ = std::make_unique<GrammarMasks>(device_.get(), kVocabSize);
  std::unique_ptr<KvBooks> kv_ = KvBooks::Create(4, {40, 40}).value();
  std::map<SequenceId, std::unique_ptr<Request>> requests_;
};

TEST_F(IterationInputsTest, AChunkHasItsTokensAndBlocksUpToItsEnd) {
  Add(1, 12, Tier::kGpu);
  const SpanInput amid = InputOf(Chunk(1, 2, 4, false));
  EXPECT_EQ(amid.token_ids, Tokens(102, 4));
  EXPECT_EQ(amid.block_table, Table(1, 2));
  EXPECT_FALSE(amid.sampling.has_value());
  EXPECT_TRUE(amid.given_tokens.empty());
  const SpanInput last = InputOf(Chunk(1, 6, 6, true));
  EXPECT_EQ(last.block_table, Table(1, 3));
  EXPECT_TRUE(last.sampling.has_value());
  EXPECT_TRUE(last.given_tokens.empty());  // what follows is drawn
}

TEST_F(IterationInputsTest, ADecodeReadsItsLastToken) {
  Add(1, 7, Tier::kGpu, {50, 51});
  const SpanInput input = InputOf(GpuDecode(1, 8));
  EXPECT_EQ(input.token_ids, std::vector<int32_t>{51});
  EXPECT_EQ(input.block_table, Table(1, 3));
  EXPECT_TRUE(input.sampling.has_value());
}

// Enqueued while the iteration runs that draws the token at 8.
TEST_F(IterationInputsTest, ADecodeMayReadATokenToCome) {
  Request& request = Add(1, 7, Tier::kGpu, {50});
  request.sampling.min_tokens = 2;
  request.end_tokens = {3};
  ASSERT_TRUE(kv_->Reserve(1, Tier::kGpu, 9));
  SpanInput input = InputOf(GpuDecode(1, 8));
  EXPECT_EQ(input.token_ids, std::vector<int32_t>{kTokenToCome});
  EXPECT_EQ(input.block_table, Table(1, 3));
  EXPECT_TRUE(input.given_tokens.empty());
  // That token is the second of the output.
  EXPECT_TRUE(input.sampling.value().banned_tokens.empty());
  request.sampling.min_tokens = 3;
  EXPECT_EQ(InputOf(GpuDecode(1, 8)).sampling.value().banned_tokens, std::vector<int32_t>{3});
}

TEST_F(IterationInputsTest, RepeatedAfterAPreemptionPromptAndOutputAreOne) {
  Add(1, 3, Tier::kGpu, {50, 51, 52});
  const SpanInput input = InputOf(Chunk(1, 0, 6, true));
  EXPECT_EQ(input.token_ids, (std::vector<int32_t>{100, 101, 102, 50, 51, 52}));
  EXPECT_TRUE(input.given_tokens.empty());
}

// Its blocks are those of the cpu tier, whichever tier attends.
TEST_F(IterationInputsTest, SpansOfTheCpuTierHaveItsBlocks) {
  ASSERT_TRUE(kv_->Reserve(9, Tier::kCpu, 20));  // so that the block numbers of the tiers differ
  Add(1, 8, Tier::kCpu);
  Add(2, 8, Tier::kCpu, {50});
  Add(3, 8, Tier::kGpu);
  const IterationInput input =
      Make(MainPlan({Chunk(1, 0, 8, true, Tier::kCpu), Chunk(3, 0, 8, true), CpuDecode(2, 8)}));
  ASSERT_EQ(input.main.size(), 3U);
  EXPECT_TRUE(input.plan.main.spans[0].in_transit());
  EXPECT_EQ(input.main[0].block_table, Table(1, 2));
  EXPECT_EQ(input.main[1].block_table, Table(3, 2));
  EXPECT_EQ(input.main[2].block_table, Table(2, 3));
  EXPECT_NE(input.main[0].block_table, input.main[1].block_table);
}

TEST_F(IterationInputsTest, SamplingIsAsAsked) {
  Request& request = Add(1, 4, Tier::kGpu, {50});
  SamplingParams& params = request.sampling;
  params.temperature = 0.25F;
  params.top_p = 0.5F;
  params.top_k = -1;
  params.min_p = 0.125F;
  params.logit_bias = {{7, 1.5F}};
  params.num_top_logprobs = 4;
  params.num_prompt_top_logprobs = 2;
  params.seed = 1;
  request.seed = 99;  // the one in use
  request.end_tokens = {2, 3};
  const SamplingInput plain = InputOf(GpuDecode(1, 4)).sampling.value();
  EXPECT_EQ(plain.temperature, 0.25F);
  EXPECT_EQ(plain.top_p, 0.5F);
  EXPECT_EQ(plain.top_k, 0);
  EXPECT_EQ(plain.min_p, 0.125F);
  EXPECT_EQ(plain.logit_bias, params.logit_bias);
  EXPECT_EQ(plain.num_top_logprobs, 4);
  EXPECT_EQ(plain.num_given_top_logprobs, 2);
  EXPECT_EQ(plain.seed, 99U);
  EXPECT_TRUE(plain.prompt_tokens.empty());
  EXPECT_TRUE(plain.output_tokens.empty());
  EXPECT_TRUE(plain.banned_tokens.empty());
  params.top_k = 20;
  params.min_tokens = 2;
  EXPECT_EQ(InputOf(GpuDecode(1, 4)).sampling->top_k, 20);
  EXPECT_EQ(InputOf(GpuDecode(1, 4)).sampling->banned_tokens, request.end_tokens);
  params.min_tokens = 1;
  EXPECT_TRUE(InputOf(GpuDecode(1, 4)).sampling->banned_tokens.empty());
}

TEST_F(IterationInputsTest, BadWordsBanTheirLastTokenWhereTheOthersHaveCome) {
  Request& request = Add(1, 4, Tier::kGpu, {50, 60, 70});
  request.end_tokens = {2};
  request.sampling.bad_words = {{9}, {70, 8}, {60, 70, 7}, {50, 60, 6}, {1, 50, 60, 70, 5}, {70, 70, 4}};
  EXPECT_EQ(InputOf(GpuDecode(1, 6)).sampling->banned_tokens, (std::vector<int32_t>{9, 8, 7}));
  request.sampling.min_tokens = 9;
  EXPECT_EQ(InputOf(GpuDecode(1, 6)).sampling->banned_tokens, (std::vector<int32_t>{2, 9, 8, 7}));
}

TEST_F(IterationInputsTest, AllowedTokensAreTheRequests) {
  Request& request = Add(1, 4, Tier::kGpu, {50});
  EXPECT_TRUE(InputOf(GpuDecode(1, 4)).sampling->allowed_tokens.empty());
  request.allowed_tokens = MakeTokenMask(std::vector<int32_t>{0, 31, 32, 99}, 100);
  EXPECT_EQ(InputOf(GpuDecode(1, 4)).sampling->allowed_tokens, (TokenMask{0x80000001U, 1U, 0U, 8U}));
}

TEST_F(IterationInputsTest, PenaltiesHaveTheTokensThatTheyCount) {
  Request& request = Add(1, 4, Tier::kGpu, {50});
  for (float SamplingParams::*const penalty :
       {&SamplingParams::presence_penalty, &SamplingParams::frequency_penalty}) {
    request.sampling.*penalty = -0.5F;
    const SamplingInput sampling = InputOf(GpuDecode(1, 4)).sampling.value();
    EXPECT_EQ(sampling.output_tokens, std::vector<int32_t>{50});
    EXPECT_TRUE(sampling.prompt_tokens.empty());
    EXPECT_EQ(sampling.presence_penalty, request.sampling.presence_penalty);
    EXPECT_EQ(sampling.frequency_penalty, request.sampling.frequency_penalty);
    request.sampling.*penalty = 0;
  }
  request.sampling.repetition_penalty = 1.5F;
  const SamplingInput repetition = InputOf(GpuDecode(1, 4)).sampling.value();
  EXPECT_EQ(repetition.repetition_penalty, 1.5F);
  EXPECT_EQ(repetition.prompt_tokens, Tokens(100, 4));
  EXPECT_EQ(repetition.output_tokens, std::vector<int32_t>{50});
}

TEST_F(IterationInputsTest, EchoGivesWhatFollowsEachRow) {
  Request& request = Add(1, 9, Tier::kGpu);
  request.sampling.num_prompt_top_logprobs = 0;
  EXPECT_EQ(InputOf(RowSpan::Chunk(1, 0, 4, 0, Tier::kGpu)).given_tokens, Tokens(101, 4));
  // Rows of what was reported before a preemption give none; behind the last row nothing is known.
  EXPECT_EQ(InputOf(RowSpan::Chunk(1, 4, 5, 6, Tier::kGpu)).given_tokens, Tokens(107, 2));
}

TEST_F(IterationInputsTest, EchoGoesOnWhereItsReportsEnd) {
  const auto request = MakeRequest(1, 9);
  EXPECT_EQ(EchoFrom(*request), std::nullopt);
  request->sampling.num_prompt_top_logprobs = 0;
  EXPECT_EQ(EchoFrom(*request), 0);
  request->num_reported_prompt_logprobs = 7;
  EXPECT_EQ(EchoFrom(*request), 7);
  request->num_reported_prompt_logprobs = 8;  // the first token has none
  EXPECT_EQ(EchoFrom(*request), std::nullopt);
  const auto single = MakeRequest(2, 1);
  single->sampling.num_prompt_top_logprobs = 0;
  EXPECT_EQ(EchoFrom(*single), std::nullopt);
}

TEST_F(IterationInputsTest, CohortsHaveInputsWhereTheyEnterOrEnd) {
  for (SequenceId id = 1; id <= 6; ++id) Add(id, 8, Tier::kCpu, {static_cast<int32_t>(50 + id)});
  IterationPlan plan;
  plan.cohorts = {
      {.cohort = 1, .rows = CpuDecodes({{1, 8}, {2, 8}}), .visits = {{kEntry, kEntry}}, .rides = true},
      {.cohort = 2, .rows = CpuDecodes({{3, 8}}), .cursor = 1, .visits = {{1, 1}}, .rides = true},
      {.cohort = 3, .rows = CpuDecodes({{4, 8}}), .cursor = 2, .visits = {{2, 2}}, .rides = true},
      {.cohort = 4, .rows = CpuDecodes({{5, 8}}), .cursor = 1, .visits = {{0, 1}, {1, 2}}},
      {.cohort = 5, .rows = CpuDecodes({{6, 8}})}};
  const std::vector<CohortStep> steps = plan.cohorts;
  const IterationInput input = Make(std::move(plan));
  EXPECT_EQ(input.plan.cohorts, steps);
  ASSERT_EQ(input.cohorts.size(), 5U);
  ASSERT_EQ(input.cohorts[0].size(), 2U);
  EXPECT_EQ(input.cohorts[0][1].token_ids, std::vector<int32_t>{52});
  EXPECT_EQ(input.cohorts[0][1].block_table, Table(2, 3));
  EXPECT_TRUE(input.cohorts[1].empty());  // amid its token
  ASSERT_EQ(input.cohorts[2].size(), 1U);
  EXPECT_TRUE(input.cohorts[2][0].sampling.has_value());
  EXPECT_EQ(input.cohorts[3].size(), 1U);
  EXPECT_TRUE(input.cohorts[4].empty());  // makes no visit
}

TEST_F(IterationInputsTest, PlanAndMovesArePassedOn) {
  Add(1, 8, Tier::kCpu, {50});
  IterationPlan plan = MainPlan({GpuDecode(1, 8)});
  plan.iteration = 12;
  plan.moves = {{1, Tier::kGpu}};
  const std::vector<BlockMove> moves = ApplyMoves(plan.moves, kv_.get());
  const IterationInput input = Make(plan, moves);
  EXPECT_EQ(input.plan.iteration, 12U);
  ASSERT_EQ(input.moves.size(), 1U);
  EXPECT_EQ(input.moves[0].destination_blocks, input.main[0].block_table);
}

using IterationInputsDeathTest = IterationInputsTest;

TEST_F(IterationInputsDeathTest, NoRowWritesToASharedBlock) {
  Add(1, 8, Tier::kGpu, {50});
  const std::vector<BlockHash> hashes = {{.halves = {1, 1}}, {.halves = {2, 2}}};
  for (const SequenceId id : {1, 2}) kv_->Identify(id, hashes);
  kv_->Publish(1, 8);
  kv_->Attach(2, Tier::kGpu, 8);
  requests_.emplace(2, MakeRequest(2, 12));
  ASSERT_TRUE(kv_->Reserve(2, Tier::kGpu, 12));
  EXPECT_EQ(InputOf(GpuDecode(1, 8)).block_table, Table(1, 3));  // behind what is shared
  EXPECT_EQ(InputOf(Chunk(2, 8, 4, true)).block_table, Table(2, 3));
  EXPECT_DEATH(InputOf(Chunk(2, 7, 5, true)), "position 7 lies in a shared block");
  EXPECT_DEATH(InputOf(Chunk(2, 0, 12, true)), "position 0 lies in a shared block");
  EXPECT_DEATH(InputOf(GpuDecode(1, 12)), "position 12 is not reserved");
}

// A mask is asked for where a row draws, and nowhere else.
TEST_F(IterationInputsTest, RowsThatDrawGetTheMaskOfTheirGrammar) {
  const testing::StrideGrammar::Options options{.stride = 5, .length = 10, .end_token = 1};
  const auto begin = [&](SequenceId id, std::vector<int32_t> output) {
    Request& request = Add(id, 7, Tier::kGpu, std::move(output));
    request.grammar = std::make_shared<GrammarProgress>(std::make_shared<testing::StrideGrammar>(options));
  };
  begin(1, {5, 6});
  begin(2, {});
  Add(3, 7, Tier::kGpu, {5});
  const IterationInput input = Make(MainPlan({GpuDecode(1, 8), GpuDecode(3, 7), Chunk(2, 0, 3, false)}));
  ASSERT_NE(input.masks_ready, nullptr);
  EXPECT_TRUE(input.masks_ready->Wait(1));
  const std::span<const uint32_t> mask = input.main[0].sampling->coming_mask;
  ASSERT_TRUE(FitsVocab(mask, kVocabSize) && !mask.empty());
  for (int32_t token = 0; token < kVocabSize; ++token) {
    EXPECT_EQ(IsInMask(mask, static_cast<size_t>(token)), testing::StrideGrammar::Has(options, 2, token));
  }
  EXPECT_TRUE(input.main[1].sampling->coming_mask.empty());
  EXPECT_FALSE(input.main[2].sampling.has_value());

  const IterationInput next = Make(MainPlan({GpuDecode(3, 7), Chunk(2, 3, 3, false)}));
  EXPECT_EQ(next.masks_ready, nullptr);
  const IterationInput last = Make(MainPlan({Chunk(2, 3, 4, true)}));
  ASSERT_NE(last.masks_ready, nullptr);
  EXPECT_TRUE(last.masks_ready->Wait(1));
  EXPECT_TRUE(IsInMask(last.main[0].sampling->coming_mask, 5));
  EXPECT_FALSE(IsInMask(last.main[0].sampling->coming_mask, 6));
}

}  // namespace
}  // namespace tandem
