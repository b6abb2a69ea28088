#include "engine/request_books.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
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

class RequestBooksTest : public ::testing::Test {
 protected:
  static constexpr int64_t kGpuBlocks = 8;
  static constexpr int64_t kCpuBlocks = 6;

  void Add(RequestId id, int64_t prompt_len) { books_.Add(MakeRequest(id, prompt_len), true); }
  std::vector<BlockMove> Apply(const IterationPlan& plan) {
    num_swapped_ = 0;
    EXPECT_TRUE(books_.Validate(plan).ok());
    return books_.Apply(plan, &num_swapped_);
  }
  // A whole prompt in `tier`, and the first token.
  void Prefill(RequestId id, Tier tier = Tier::kGpu) {
    IterationPlan plan;
    plan.main.spans = {Chunk(id, 0, books_.At(id).num_tokens(), true, tier)};
    Apply(plan);
    TakeToken(id);
  }
  void TakeToken(RequestId id) {
    Request& request = books_.At(id);
    books_.TakeComputed(&request, request.num_tokens());
    books_.TakeToken(&request, 7);
  }
  int64_t gpu_free() const { return kv_->free_blocks(Tier::kGpu); }
  int64_t cpu_free() const { return kv_->free_blocks(Tier::kCpu); }
  void ExpectNothingHeld() const {
    EXPECT_EQ(gpu_free(), kGpuBlocks);
    EXPECT_EQ(cpu_free(), kCpuBlocks);
    EXPECT_TRUE(books_.empty());
    EXPECT_TRUE(books_.state().running.empty());
    EXPECT_TRUE(books_.state().waiting.empty());
  }

  std::unique_ptr<KvBooks> kv_ = MakeBooks(kGpuBlocks, kCpuBlocks);
  RequestBooks books_{testing::TestLimits(), /*max_model_len=*/40, kv_.get()};
  int64_t num_swapped_ = 0;
};

TEST_F(RequestBooksTest, AdmitsAndReservesByTier) {
  Add(1, 5);
  Add(2, 9);
  Add(3, 2);
  EXPECT_EQ(books_.state().waiting.size(), 3U);
  IterationPlan plan;
  // All blocks of a prompt are reserved with its first chunk.
  plan.main.spans = {Chunk(1, 0, 3, false), Chunk(2, 0, 9, true, Tier::kCpu)};
  EXPECT_TRUE(Apply(plan).empty());
  EXPECT_EQ(gpu_free(), kGpuBlocks - 2);
  EXPECT_EQ(cpu_free(), kCpuBlocks - 3);
  EXPECT_EQ(books_.state().running.size(), 2U);
  EXPECT_EQ(books_.state().waiting.size(), 1U);
  EXPECT_EQ(books_.RunningInCpuTier(), std::vector<RequestId>{2});
  EXPECT_EQ(books_.IdsBelow(3).size(), 2U);

  books_.TakeComputed(&books_.At(1), 3);
  TakeToken(2);
  EXPECT_EQ(books_.state().running[0],
            (ScheduledSequence{.id = 1, .num_tokens = 5, .num_computed = 3, .final_tokens = 21}));
  EXPECT_TRUE(books_.state().running[1].decoding());
  for (const RequestId id : {1, 2, 3}) books_.Forget(id);
  ExpectNothingHeld();
}

TEST_F(RequestBooksTest, MovesComeInTheOrderOfTheirCopies) {
  Add(1, 13);
  Add(2, 15);
  Add(3, 16);
  Prefill(1);
  Prefill(2);
  Prefill(3, Tier::kCpu);
  books_.Forget(2);
  EXPECT_EQ(gpu_free(), 4);
  EXPECT_EQ(cpu_free(), 2);
  // What leaves the gpu tier comes first, but the cpu tier has no room for it before the other has left.
  IterationPlan plan;
  plan.moves = {{1, Tier::kCpu}, {3, Tier::kGpu}};
  plan.main.spans = {GpuDecode(3, 16), CpuDecode(1, 13)};
  const std::vector<BlockMove> moves = Apply(plan);
  ASSERT_EQ(moves.size(), 2U);
  EXPECT_EQ(moves[0].sequence, 3U);
  EXPECT_EQ(moves[0].to, Tier::kGpu);
  EXPECT_EQ(moves[0].source_blocks.size(), 4U);
  EXPECT_EQ(moves[1].sequence, 1U);
  EXPECT_EQ(num_swapped_, 16 + 13);
  EXPECT_EQ(kv_->tier_of(3), Tier::kGpu);
  EXPECT_EQ(kv_->tier_of(1), Tier::kCpu);
  EXPECT_EQ(gpu_free(), kGpuBlocks - 5);  // the decode has grown by a block
  EXPECT_EQ(cpu_free(), kCpuBlocks - 4);
}

TEST_F(RequestBooksTest, ThePreemptedWaitInFrontAndKeepTheirTokens) {
  Add(1, 6);
  Add(2, 3);
  Prefill(1);
  IterationPlan plan;
  plan.preempted = {1};
  plan.main.spans = {Chunk(2, 0, 3, true)};
  Apply(plan);
  EXPECT_EQ(gpu_free(), kGpuBlocks - 1);
  Add(3, 3);
  ASSERT_EQ(books_.state().waiting.size(), 2U);
  const ScheduledSequence& first = *books_.state().waiting.begin();
  EXPECT_EQ(first.id, 1U);
  EXPECT_EQ(first.num_tokens, 7);
  EXPECT_EQ(first.num_computed, 0);
  EXPECT_EQ(books_.At(1).num_preemptions, 1);
  EXPECT_EQ(books_.At(1).output_tokens, std::vector<int32_t>{7});
}

TEST_F(RequestBooksTest, RefusesAPlanForOtherBooks) {
  Add(1, 6);
  IterationPlan plan;
  plan.main.spans = {GpuDecode(1, 5)};
  EXPECT_FALSE(books_.Validate(plan).ok());  // has nothing in the cache
  plan.main.spans = {Chunk(2, 0, 6, true)};
  EXPECT_FALSE(books_.Validate(plan).ok());  // is unknown
  plan.main.spans = {Chunk(1, 0, 6, true)};
  EXPECT_TRUE(books_.Validate(plan).ok());
}

TEST_F(RequestBooksTest, EndsByTheRequestsOwnLengthOrTheModels) {
  books_.Add(MakeRequest(1, 10, /*max_tokens=*/5), true);
  books_.Add(MakeRequest(2, 38, /*max_tokens=*/5), true);
  EXPECT_FALSE(books_.EndsByLength(books_.At(1), 4));
  EXPECT_TRUE(books_.EndsByLength(books_.At(1), 5));
  EXPECT_FALSE(books_.EndsByLength(books_.At(2), 1));
  EXPECT_TRUE(books_.EndsByLength(books_.At(2), 2));
}

TEST_F(RequestBooksTest, LearnsTheWorkFromThoseThatEnd) {
  Add(1, 8);
  EXPECT_EQ(books_.state().prompt_tokens_per_output, WorkShape::kUnknown);
  books_.CountEnd(books_.At(1), 4);
  EXPECT_DOUBLE_EQ(books_.state().prompt_tokens_per_output, 2);
  EXPECT_DOUBLE_EQ(books_.state().mean_output_tokens, 4);
  // Of a request that began amid its output the last tokens of the prompt are output.
  auto begun = MakeRequest(2, 12);
  begun->num_made_tokens = 4;
  books_.Add(std::move(begun), true);
  books_.CountEnd(books_.At(2), 0);
  EXPECT_DOUBLE_EQ(books_.state().prompt_tokens_per_output, 2);
}

TEST_F(RequestBooksTest, WhoBeginsAmidItsOutputRunsWhereThereIsRoom) {
  const auto add_begun = [&](RequestId id, int64_t num_tokens, bool uses_cpu_tier) {
    auto request = MakeRequest(id, num_tokens);
    request->begun = true;
    books_.Add(std::move(request), uses_cpu_tier);
  };
  add_begun(1, 20, true);  // 5 of 8 blocks
  EXPECT_EQ(kv_->tier_of(1), Tier::kGpu);
  EXPECT_EQ(books_.At(1).num_computed_tokens, 19);
  EXPECT_TRUE(books_.state().running[0].decoding());
  // Three are free, one is for the first to grow.
  add_begun(2, 12, false);
  EXPECT_EQ(kv_->tier_of(2), std::nullopt);
  EXPECT_EQ(books_.state().waiting.size(), 1U);
  add_begun(3, 12, true);
  EXPECT_EQ(kv_->tier_of(3), Tier::kCpu);
  // Of the cpu tier a hundredth stays free, one block at least: 3 of 6 are left.
  add_begun(4, 12, true);
  EXPECT_EQ(kv_->tier_of(4), std::nullopt);
  add_begun(5, 8, true);
  EXPECT_EQ(kv_->tier_of(5), Tier::kGpu);
  // Nothing could be computed of one token.
  add_begun(6, 1, true);
  EXPECT_EQ(kv_->tier_of(6), std::nullopt);
}

TEST_F(RequestBooksTest, CohortsGoTheirWay) {
  for (const RequestId id : {1, 2}) {
    Add(id, 4);
    Prefill(id, Tier::kCpu);
  }
  CohortStep step = {.cohort = 3,
                     .rows = CpuDecodes({{1, 4}}),
                     .cursor = kEntry,
                     .visits = {{kEntry, kEntry}},
                     .rides = true};
  IterationPlan plan;
  plan.main.spans = {CpuDecode(2, 4)};
  plan.cohorts = {step};
  Apply(plan);
  EXPECT_EQ(cpu_free(), kCpuBlocks - 4);  // both have grown
  books_.MoveCohort(step, 0);
  EXPECT_EQ(books_.CohortOf(1), 3U);
  EXPECT_EQ(books_.CohortOf(2), std::nullopt);
  ASSERT_EQ(books_.state().cohorts.size(), 1U);
  EXPECT_EQ(books_.state().cohorts[0].cursor, 0);
  // Its token is done.
  step.cursor = 0;
  books_.MoveCohort(step, kEntry);
  EXPECT_TRUE(books_.state().cohorts.empty());
  step.cursor = kEntry;
  books_.MoveCohort(step, 0);
  books_.DropCohort(4);
  EXPECT_EQ(books_.state().cohorts.size(), 1U);
  books_.DropCohort(3);
  EXPECT_EQ(books_.CohortOf(1), std::nullopt);
}

// CPU attention that hangs may still write to the blocks of those that it was to serve.
TEST_F(RequestBooksTest, BlocksOfAFailedCpuTierStayTakenUntilItIsBack) {
  Add(1, 4);
  Add(2, 4);
  Prefill(1, Tier::kCpu);
  Prefill(2);
  books_.MoveCohort({.cohort = 1, .rows = CpuDecodes({{1, 4}}), .visits = {{kEntry, kEntry}}}, 0);
  books_.FailCpuTier();
  EXPECT_FALSE(books_.state().cpu_tier_usable);
  EXPECT_TRUE(books_.state().cohorts.empty());
  books_.Forget(1);
  books_.Forget(2);
  EXPECT_TRUE(books_.any_stalled());
  EXPECT_FALSE(books_.contains(1));
  EXPECT_EQ(cpu_free(), kCpuBlocks - 1);
  EXPECT_EQ(gpu_free(), kGpuBlocks);
  books_.ReleaseStalled();
  EXPECT_TRUE(books_.state().cpu_tier_usable);
  EXPECT_FALSE(books_.any_stalled());
  ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem
