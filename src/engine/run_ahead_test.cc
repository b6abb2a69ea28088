#include "engine/run_ahead.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "engine/request_books_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using testing::Chunk;
using testing::CpuDecode;
using testing::GpuDecode;
using testing::MainPlan;
using testing::MakeRequest;

// Whether the decode of a request that was changed so may be enqueued ahead.
bool May(const std::function<void(Request*)>& change) {
  const std::unique_ptr<Request> request = MakeRequest(1, 10);
  change(request.get());
  return MayRunAhead(MainPlan({GpuDecode(1, 10)}),
                     [&](SequenceId /*id*/) -> const Request& { return *request; });
}

TEST(MayRunAheadTest, DrawsThatGoBySeedAndPosition) {
  EXPECT_TRUE(May([](Request* request) {
    request->sampling.temperature = 1;
    request->sampling.top_p = 0.5F;
    request->sampling.top_k = 4;
    request->sampling.min_p = 0.1F;
    request->sampling.min_tokens = 5;
    request->sampling.num_top_logprobs = 3;
    request->sampling.logit_bias = {{1, 2.0F}};
    request->sampling.stop_token_ids = {3};
  }));
}

TEST(MayRunAheadTest, NotWhatGoesByTokensThatTheHostHasToSee) {
  EXPECT_FALSE(May([](Request* request) { request->sampling.presence_penalty = 0.5F; }));
  EXPECT_FALSE(May([](Request* request) { request->sampling.frequency_penalty = 0.5F; }));
  EXPECT_FALSE(May([](Request* request) { request->sampling.repetition_penalty = 1.5F; }));
  EXPECT_FALSE(May([](Request* request) { request->sampling.bad_words = {{1, 2}}; }));
  EXPECT_FALSE(May([](Request* request) { request->sampling.num_prompt_top_logprobs = 0; }));
  EXPECT_FALSE(May([](Request* request) { request->pooling = Pooling::kLast; }));
}

TEST(MayRunAheadTest, OnlyRowsOfTheGpuTierOnTheComputeStream) {
  const std::unique_ptr<Request> request = MakeRequest(1, 10);
  const auto may = [&](const IterationPlan& plan) {
    return MayRunAhead(plan, [&](SequenceId /*id*/) -> const Request& { return *request; });
  };
  EXPECT_TRUE(may(MainPlan({Chunk(1, 0, 10, true), GpuDecode(2, 10)})));
  EXPECT_FALSE(may({}));
  EXPECT_FALSE(may(MainPlan({CpuDecode(1, 10)})));
  EXPECT_FALSE(may(MainPlan({RowSpan::Chunk(1, 0, 5, 9, Tier::kCpu)})));
  IterationPlan plan = MainPlan({GpuDecode(2, 10)});
  plan.moves = {{1, Tier::kCpu}};
  EXPECT_FALSE(may(plan));
  plan.moves.clear();
  plan.preempted = {Preemption{1}};
  EXPECT_FALSE(may(plan));
  plan.preempted.clear();
  plan.cohorts.push_back({.cohort = 1, .rows = {CpuDecode(1, 10)}, .visits = {{kEntry, kEntry}}});
  EXPECT_FALSE(may(plan));
}

class RunAheadClockTest : public ::testing::Test {
 protected:
  // An iteration of plan that takes so long.
  void Run(const IterationPlan& plan, int64_t us) {
    clock_.Begin(plan, now_);
    now_ += microseconds(us);
    clock_.End(plan, false, now_);
  }
  // Of the iteration that begins now, until the next is enqueued.
  int64_t WaitUs(const IterationPlan& plan) {
    clock_.Begin(plan, now_);
    return std::chrono::duration_cast<microseconds>(clock_.StartAt() - now_).count();
  }

  const IterationPlan one_ = MainPlan({GpuDecode(1, 10)});
  const IterationPlan two_ = MainPlan({GpuDecode(1, 10), GpuDecode(2, 10)});
  RunAheadClock clock_{nullptr};
  RunAheadClock::TimePoint now_ = Clock::now();
};

TEST_F(RunAheadClockTest, AtOnceWhereNothingIsKnownOrIterationsAreShort) {
  EXPECT_EQ(WaitUs(two_), 0);
  Run(two_, 700);
  EXPECT_EQ(WaitUs(two_), 0);
}

TEST_F(RunAheadClockTest, ShortlyBeforeTheEndWhereTheyAreLong) {
  Run(two_, 20'000);
  EXPECT_EQ(WaitUs(two_), 19'000);
  // Half the rows may take half as long; more rows take no less.
  EXPECT_EQ(WaitUs(one_), 9'000);
  Run(one_, 20'000);
  EXPECT_LT(WaitUs(two_), 19'000);
}

TEST_F(RunAheadClockTest, PrefillsAreAKindOfTheirOwn) {
  Run(MainPlan({Chunk(1, 0, 100, true), GpuDecode(2, 10)}), 101'000);
  EXPECT_EQ(WaitUs(two_), 0);
  EXPECT_EQ(WaitUs(MainPlan({Chunk(1, 0, 201, true), GpuDecode(2, 10)})), 201'000);
  Run(two_, 20'000);
  EXPECT_EQ(WaitUs(two_), 19'000);
}

TEST_F(RunAheadClockTest, EarlierWhereTheHostIsSlowOrPredictionsAreOff) {
  Run(two_, 20'000);
  clock_.CountEnqueueUs(500);
  EXPECT_EQ(WaitUs(two_), 18'500);
  // Once slow it may be so again, for some time.
  clock_.CountEnqueueUs(100);
  EXPECT_EQ(WaitUs(two_), 18'550);
  Run(two_, 24'000);
  EXPECT_EQ(WaitUs(two_), 24'000 - 1'000 - 450 - 2 * 500);
}

}  // namespace
}  // namespace tandem
