#include "engine/results.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/requests_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using testing::MakeBooks;
using testing::MakeRequest;

constexpr int32_t kEos = 2;

class ResultsTest : public ::testing::Test {
 protected:
  // A running request whose prompt of 4 tokens is about to be prefilled, in `tier`.
  void Run(RequestId id, Tier tier = Tier::kGpu, int64_t max_tokens = 3, int64_t min_tokens = 0) {
    auto request = MakeRequest(id, 4, max_tokens);
    request->sampling.min_tokens = min_tokens;
    request->end_tokens = {kEos, 50};
    request->callback = [this](RequestOutput output) {
      // The blocks of who ends are free before the client hears of it.
      if (output.finish_reason != FinishReason::kNone) {
        EXPECT_FALSE(books_.contains(output.id));
        EXPECT_EQ(kv_->held_blocks(output.id), 0);
      }
      heard_.push_back(std::move(output));
    };
    books_.Add(std::move(request), true);
    IterationPlan plan;
    plan.main.spans = {Chunk(id, 0, 4, true, tier)};
    int64_t num_swapped = 0;
    books_.Apply(plan, &num_swapped);
  }
  void Take(RequestId id, const std::vector<int32_t>& tokens) {
    SequenceResult result{.sequence = id, .num_computed = books_.At(id).num_tokens()};
    for (const int32_t token : tokens) result.tokens.push_back({.token = token});
    results_.Take(std::move(result));
  }
  EngineStats& stats() { return counters_.stats(); }

  std::unique_ptr<KvBooks> kv_ = MakeBooks(8, 8);
  RequestBooks books_{testing::TestLimits(), /*max_model_len=*/40, kv_.get()};
  EngineCounters counters_{kv_.get(), &books_.state(), nullptr, 0};
  Results results_{&books_, kv_.get(), &counters_, [this](RequestId id) { books_.Forget(id); }};
  std::vector<RequestOutput> heard_;
};

TEST_F(ResultsTest, TokensAreDeliveredInOrderAndNotBefore) {
  Run(1);
  Run(2, Tier::kCpu);
  Take(2, {11});
  Take(1, {12});
  EXPECT_TRUE(heard_.empty());
  results_.Deliver();
  ASSERT_EQ(heard_.size(), 2U);
  EXPECT_EQ(heard_[0].id, 2U);
  EXPECT_EQ(heard_[0].tokens[0].token, 11);
  EXPECT_TRUE(heard_[0].cpu_tier);
  EXPECT_EQ(heard_[0].finish_reason, FinishReason::kNone);
  EXPECT_EQ(heard_[1].id, 1U);
  EXPECT_FALSE(heard_[1].cpu_tier);
  EXPECT_EQ(books_.At(1).output_tokens, std::vector<int32_t>{12});
  EXPECT_EQ(stats().prompt_tokens, 8U);
  EXPECT_EQ(stats().generation_tokens, 2U);
  EXPECT_EQ(stats().cpu_tier_tokens, 1U);
  results_.Deliver();
  EXPECT_EQ(heard_.size(), 2U);
}

TEST_F(ResultsTest, AnEndTokenStopsUnlessItIsTooSoon) {
  Run(1, Tier::kGpu, 10);
  Run(2, Tier::kGpu, 10, /*min_tokens=*/2);
  Take(1, {50});
  for (const int32_t token : {kEos, 9, kEos}) {
    Take(2, {token});
    results_.Deliver();
  }
  ASSERT_EQ(heard_.size(), 4U);
  EXPECT_EQ(heard_[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(heard_[0].stop_token_id, 50);
  EXPECT_EQ(heard_[1].finish_reason, FinishReason::kNone);
  EXPECT_EQ(heard_[2].finish_reason, FinishReason::kNone);
  EXPECT_EQ(heard_[3].finish_reason, FinishReason::kStop);
  EXPECT_EQ(heard_[3].stop_token_id, kEos);
  EXPECT_TRUE(books_.empty());
}

TEST_F(ResultsTest, LengthEndsAndIsLearnedFrom) {
  Run(1, Tier::kGpu, 2);
  Take(1, {9});
  results_.Deliver();
  EXPECT_DOUBLE_EQ(books_.state().mean_output_tokens, 0);
  Take(1, {9});
  EXPECT_DOUBLE_EQ(books_.state().mean_output_tokens, 2);
  results_.Deliver();
  EXPECT_EQ(heard_.back().finish_reason, FinishReason::kLength);
  EXPECT_EQ(heard_.back().stop_token_id, -1);
}

// Several tokens at once, as of an accepted draft: what comes behind the end is nobody's.
TEST_F(ResultsTest, NothingComesBehindAnEnd) {
  Run(1, Tier::kGpu, 10);
  Take(1, {9, kEos, 8});
  results_.Deliver();
  ASSERT_EQ(heard_.size(), 1U);
  ASSERT_EQ(heard_[0].tokens.size(), 2U);
  EXPECT_EQ(heard_[0].tokens[1].token, kEos);
  EXPECT_EQ(stats().generation_tokens, 2U);
}

TEST_F(ResultsTest, AChunkWithNothingToSayIsNotDelivered) {
  Run(1);
  results_.Take({.sequence = 1, .num_computed = 2});
  results_.Deliver();
  EXPECT_TRUE(heard_.empty());
  EXPECT_EQ(stats().prompt_tokens, 2U);
  SequenceResult echo{.sequence = 1, .num_computed = 3};
  echo.prompt_logprobs.resize(2);
  results_.Take(std::move(echo));
  results_.Deliver();
  ASSERT_EQ(heard_.size(), 1U);
  EXPECT_EQ(heard_[0].prompt_logprobs.size(), 2U);
  EXPECT_EQ(books_.At(1).num_reported_prompt_logprobs, 2);
}

TEST_F(ResultsTest, WorkRepeatedAfterAPreemptionIsNotCountedAgain) {
  Run(1);
  Take(1, {9});
  IterationPlan plan;
  plan.preempted = {1};
  int64_t num_swapped = 0;
  books_.Apply(plan, &num_swapped);
  plan = {};
  plan.main.spans = {Chunk(1, 0, 5, true)};
  books_.Apply(plan, &num_swapped);
  Take(1, {9});
  EXPECT_EQ(stats().prompt_tokens, 4U);
  EXPECT_EQ(stats().generation_tokens, 2U);
}

TEST_F(ResultsTest, AnEndFromOutsideComesAtOnceWithItsReason) {
  Run(1);
  Run(2);
  results_.End(1, FinishReason::kCancelled, std::nullopt);
  results_.End(2, FinishReason::kError, Error{.code = ErrorCode::kUnavailable, .message = "a stall"});
  ASSERT_EQ(heard_.size(), 2U);
  EXPECT_EQ(heard_[0].finish_reason, FinishReason::kCancelled);
  EXPECT_FALSE(heard_[0].error.has_value());
  EXPECT_EQ(heard_[1].error->message, "a stall");
  EXPECT_EQ(kv_->free_blocks(Tier::kGpu), 8);
}

}  // namespace
}  // namespace tandem
