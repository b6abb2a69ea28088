#include "engine/results.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/inbox.h"
#include "engine/request_books_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::BooksInUse;
using testing::Chunk;
using testing::MainPlan;
using testing::MakeRequest;

constexpr int32_t kEos = 2;
constexpr int32_t kStop = 3;

class ResultsTest : public ::testing::Test {
 protected:
  // The prompt of a request of the inbox is computed, no token is drawn.
  Request& Prefill(std::unique_ptr<Request> request, Tier tier = Tier::kGpu) {
    inbox_.Submit(std::make_unique<Request>()).value();
    request->callback = [this](RequestOutput output) {
      outputs_.push_back(std::move(output));
      if (on_output_) on_output_(outputs_.back());
    };
    return use_.AddRunning(std::move(request), tier);
  }
  // Tokens of a decode, or several at once as those of a draft.
  void TakeTokens(RequestId id, const std::vector<int32_t>& tokens) {
    SequenceResult result{.sequence = id, .num_computed = use_.books.At(id).num_tokens()};
    for (const int32_t token : tokens) result.tokens.push_back({.token = token, .logprob = -0.5F});
    results_.Take(std::move(result));
  }
  const EngineStats& stats() { return counters_.stats(); }

  BooksInUse use_{{40, 40}};
  Inbox inbox_{100, 1};
  EngineCounters counters_{use_.kv.get(), &use_.books.state(), nullptr, 0};
  // As the loop does.
  Results results_{&use_.books, use_.kv.get(), &counters_, [this](RequestId id) {
                     use_.books.Forget(id);
                     inbox_.EndRequest([this](EngineStats* all) { counters_.UpdateGauges(all); },
                                       [this]() -> const EngineStats& { return counters_.Snapshot(); });
                   }};
  std::vector<RequestOutput> outputs_;
  std::function<void(const RequestOutput&)> on_output_;
};

TEST_F(ResultsTest, BooksAtOnceOutputInOrderWhenDelivered) {
  Request& first = Prefill(MakeRequest(1, 8));
  Prefill(MakeRequest(2, 8), Tier::kCpu);
  TakeTokens(2, {20});
  TakeTokens(1, {10, 11});
  EXPECT_EQ(first.output_tokens, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(use_.books.state().running[0].num_tokens, 10);
  EXPECT_TRUE(outputs_.empty());
  results_.Deliver();
  results_.Deliver();  // once is enough
  ASSERT_EQ(outputs_.size(), 2U);
  EXPECT_EQ(outputs_[0].id, 2U);
  EXPECT_EQ(outputs_[0].first_scheduled, use_.now);
  EXPECT_TRUE(outputs_[0].cpu_tier);
  EXPECT_EQ(outputs_[1].id, 1U);
  EXPECT_FALSE(outputs_[1].cpu_tier);
  ASSERT_EQ(outputs_[1].tokens.size(), 2U);
  EXPECT_EQ(outputs_[1].tokens[1].token, 11);
  EXPECT_EQ(outputs_[1].tokens[1].logprob, -0.5F);
  EXPECT_EQ(outputs_[1].finish_reason, FinishReason::kNone);
  EXPECT_EQ(stats().generation_tokens, 3U);
  EXPECT_EQ(stats().cpu_tier_tokens, 1U);
}

TEST_F(ResultsTest, AChunkIsHeardOfOnlyIfItsLogprobsAreAsked) {
  auto request = MakeRequest(1, 20);
  request->sampling.num_prompt_top_logprobs = 0;
  Request& echo = Prefill(std::move(request));
  results_.Take({.sequence = 1, .num_computed = 8});
  results_.Deliver();
  EXPECT_TRUE(outputs_.empty());
  results_.Take({.sequence = 1, .num_computed = 12, .prompt_logprobs = {{.token = 101}, {.token = 102}}});
  EXPECT_EQ(echo.num_reported_prompt_logprobs, 2);
  EXPECT_EQ(use_.books.state().running[0].echo_from, 2);
  results_.Deliver();
  ASSERT_EQ(outputs_.size(), 1U);
  ASSERT_EQ(outputs_[0].prompt_logprobs.size(), 2U);
  EXPECT_EQ(outputs_[0].prompt_logprobs[1].token, 102);
  EXPECT_TRUE(outputs_[0].tokens.empty());
}

TEST_F(ResultsTest, PromptTokensCountOnce) {
  use_.books.Add(MakeRequest(1, 20), true);
  use_.Apply(MainPlan({Chunk(1, 0, 8, false)}));
  results_.Take({.sequence = 1, .num_computed = 8});
  EXPECT_EQ(stats().prompt_tokens, 8U);
  results_.Take({.sequence = 1, .num_computed = 20, .tokens = {{.token = 9}}});
  EXPECT_EQ(stats().prompt_tokens, 20U);
  for (int i = 0; i < 2; ++i) TakeTokens(1, {9});
  EXPECT_EQ(stats().prompt_tokens, 20U);
  IterationPlan preempts;
  preempts.preempted = {Preemption{1}};
  use_.Apply(preempts);
  use_.Apply(MainPlan({Chunk(1, 0, 23, true)}));
  TakeTokens(1, {9});
  EXPECT_EQ(stats().prompt_tokens, 20U);
}

// Preempted before its first result, a request looks for its beginning as if it came first.
TEST_F(ResultsTest, WhatWasFoundInVainIsNoHit) {
  const BlockHasher hasher({1, 2}, 4);
  const auto make = [&](RequestId id) {
    auto request = MakeRequest(id, 12);
    std::iota(request->prompt_tokens.begin(), request->prompt_tokens.end(), 0);
    request->prefix_root = hasher.Root("");
    request->prompt_hashes = hasher.FullBlocks(*request->prefix_root, request->prompt_tokens);
    return request;
  };
  Prefill(make(1));
  // 8 tokens are found by both; later 4 by one of them, and nothing by the other.
  for (const RequestId id : {2, 3}) {
    use_.books.Add(make(id), true);
    IterationPlan plan = MainPlan({Chunk(id, 8, 4, true)});
    plan.attached = {{.sequence = id, .tier = Tier::kGpu, .num_tokens = 8}};
    use_.Apply(plan);
    IterationPlan preempts;
    preempts.preempted = {Preemption{id}};
    use_.Apply(preempts);
  }
  IterationPlan again = MainPlan({Chunk(2, 4, 8, true), Chunk(3, 0, 12, true)});
  again.attached = {{.sequence = 2, .tier = Tier::kGpu, .num_tokens = 4}};
  use_.Apply(again);
  for (const RequestId id : {2, 3})
    results_.Take({.sequence = id, .num_computed = 12, .tokens = {{.token = 9}}});
  EXPECT_EQ(stats().prefix_queried_tokens, 24U);
  EXPECT_EQ(stats().prefix_hit_tokens, 4U);
  EXPECT_EQ(stats().prompt_tokens, 20U);
  EXPECT_EQ(stats().recomputed_tokens, 0U);
  EXPECT_EQ(use_.books.At(2).num_cached_tokens, 4);
  EXPECT_EQ(use_.books.At(3).num_cached_tokens, 0);
}

struct EndCase {
  std::string name;
  std::vector<int32_t> tokens;
  int64_t min_tokens = 0;
  int64_t max_tokens = 16;
  int64_t prompt_len = 8;
  FinishReason reason = FinishReason::kNone;
  int32_t stop_token_id = -1;
  size_t num_taken = 0;
};

class EndTest : public ResultsTest, public ::testing::WithParamInterface<EndCase> {};

TEST_P(EndTest, HasItsReason) {
  const EndCase& end = GetParam();
  auto request = MakeRequest(1, end.prompt_len, end.max_tokens);
  request->end_tokens = {kStop, kEos};
  request->sampling.min_tokens = end.min_tokens;
  Prefill(std::move(request));
  TakeTokens(1, end.tokens);
  results_.Deliver();
  ASSERT_EQ(outputs_.size(), 1U);
  EXPECT_EQ(outputs_[0].finish_reason, end.reason);
  EXPECT_EQ(outputs_[0].stop_token_id, end.stop_token_id);
  EXPECT_EQ(outputs_[0].tokens.size(), end.num_taken);
  EXPECT_EQ(stats().generation_tokens, end.num_taken);
  const bool ends = end.reason != FinishReason::kNone;
  EXPECT_EQ(use_.books.contains(1), !ends);
  EXPECT_EQ(use_.AllFree(), ends);
  // What the work is like is learned from those that end by themselves.
  EXPECT_EQ(use_.books.state().mean_output_tokens, ends ? static_cast<double>(end.num_taken) : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Results, EndTest,
    ::testing::Values(EndCase{.name = "none", .tokens = {9}, .num_taken = 1},
                      EndCase{.name = "eos",
                              .tokens = {9, kEos},
                              .reason = FinishReason::kStop,
                              .stop_token_id = kEos,
                              .num_taken = 2},
                      EndCase{.name = "stop_token_amid_a_draft",
                              .tokens = {9, kStop, 9, kEos},
                              .reason = FinishReason::kStop,
                              .stop_token_id = kStop,
                              .num_taken = 2},
                      // A penalty may leave nothing else to draw.
                      EndCase{.name = "eos_too_early", .tokens = {9, kEos}, .min_tokens = 2, .num_taken = 2},
                      EndCase{.name = "eos_late_enough",
                              .tokens = {kEos, kEos, kEos, 9},
                              .min_tokens = 2,
                              .reason = FinishReason::kStop,
                              .stop_token_id = kEos,
                              .num_taken = 3},
                      EndCase{.name = "max_tokens_amid_a_draft",
                              .tokens = {9, 9, 9},
                              .max_tokens = 2,
                              .reason = FinishReason::kLength,
                              .num_taken = 2},
                      EndCase{.name = "eos_at_max_tokens",
                              .tokens = {9, kEos},
                              .max_tokens = 2,
                              .reason = FinishReason::kStop,
                              .stop_token_id = kEos,
                              .num_taken = 2},
                      EndCase{.name = "context_is_full",
                              .tokens = {9, 9, 9, 9, 9},
                              .prompt_len = 60,
                              .reason = FinishReason::kLength,
                              .num_taken = 4}),
    [](const auto& each) { return each.param.name; });

// Two end in one iteration, one goes on between them.
TEST_F(ResultsTest, EndsAreDeliveredAmongTheOthersAndBehindTheirBlocks) {
  for (RequestId id = 1; id <= 3; ++id) Prefill(MakeRequest(id, 8, id == 2 ? 5 : 1));
  bool was_free = true;
  on_output_ = [&](const RequestOutput& output) {
    if (output.finish_reason == FinishReason::kNone) return;
    was_free = was_free && !use_.books.contains(output.id) && use_.kv->held_blocks(output.id) == 0;
  };
  for (RequestId id = 1; id <= 3; ++id) TakeTokens(id, {9});
  EXPECT_EQ(inbox_.Stats().num_running, 1);  // published before the outputs are
  results_.Deliver();
  ASSERT_EQ(outputs_.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(outputs_[i].id, i + 1);
  EXPECT_EQ(outputs_[1].finish_reason, FinishReason::kNone);
  EXPECT_EQ(outputs_[2].finish_reason, FinishReason::kLength);
  EXPECT_TRUE(was_free);
}

TEST_F(ResultsTest, EndSaysWhyAtOnce) {
  Prefill(MakeRequest(1, 8));
  Prefill(MakeRequest(2, 8), Tier::kCpu);
  bool was_free = false;
  on_output_ = [&](const RequestOutput& output) { was_free = use_.kv->held_blocks(output.id) == 0; };
  results_.End(1, FinishReason::kError, MakeError(ErrorCode::kUnavailable, "no answer"));
  ASSERT_EQ(outputs_.size(), 1U);
  EXPECT_EQ(outputs_[0].id, 1U);
  EXPECT_EQ(outputs_[0].finish_reason, FinishReason::kError);
  ASSERT_TRUE(outputs_[0].error.has_value());
  EXPECT_EQ(outputs_[0].error->message, "no answer");
  EXPECT_TRUE(was_free);
  results_.End(2, FinishReason::kCancelled, std::nullopt);
  EXPECT_EQ(outputs_[1].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(outputs_[1].first_scheduled, use_.now);
  EXPECT_FALSE(outputs_[1].error.has_value());
  EXPECT_TRUE(use_.AllFree());
  EXPECT_EQ(use_.books.state().mean_output_tokens, 0);  // says nothing of the work
  results_.Deliver();
  EXPECT_EQ(outputs_.size(), 2U);
}

TEST_F(ResultsTest, WhoEndsInTheQueueWasNeverScheduled) {
  inbox_.Submit(std::make_unique<Request>()).value();
  auto request = MakeRequest(1, 8);
  request->callback = [this](RequestOutput output) { outputs_.push_back(std::move(output)); };
  use_.books.Add(std::move(request), true);
  results_.End(1, FinishReason::kCancelled, std::nullopt);
  ASSERT_EQ(outputs_.size(), 1U);
  EXPECT_EQ(outputs_[0].first_scheduled, std::nullopt);
}

TEST_F(ResultsTest, CallbacksSubmitAndCancelThroughTheInbox) {
  Prefill(MakeRequest(1, 8, 1));
  Prefill(MakeRequest(2, 8));
  Inbox::News news;
  inbox_.Take(true, false, &news);
  on_output_ = [this](const RequestOutput& output) {
    EXPECT_TRUE(inbox_.Submit(MakeRequest(0, 4)).ok());
    inbox_.Cancel(output.id);
    inbox_.Cancel(2);
  };
  TakeTokens(1, {9});
  TakeTokens(2, {9});
  results_.Deliver();
  EXPECT_EQ(outputs_.size(), 2U);
  EXPECT_TRUE(use_.books.contains(2));
  EXPECT_TRUE(use_.books.state().waiting.empty());
  inbox_.Take(true, false, &news);
  EXPECT_EQ(news.arrived.size(), 2U);
  EXPECT_EQ(news.cancelled, (std::vector<RequestId>{1, 2, 2, 2}));
  // Also from the last call of a request, where the end itself is published through the inbox.
  results_.End(2, FinishReason::kCancelled, std::nullopt);
  inbox_.Take(true, false, &news);
  EXPECT_EQ(news.arrived.size(), 1U);
}

}  // namespace
}  // namespace tandem
