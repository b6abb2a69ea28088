#include "engine/request_books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request_books_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::BooksInUse;
using testing::Chunk;
using testing::CpuDecode;
using testing::CpuDecodes;
using testing::GpuDecode;
using testing::MainPlan;
using testing::MakeRequest;

std::vector<RequestId> IdsOf(const std::vector<ScheduledSequence>& sequences) {
  std::vector<RequestId> ids;
  ids.reserve(sequences.size());
  for (const ScheduledSequence& each : sequences) ids.push_back(each.id);
  return ids;
}

// A riding cohort that enters.
CohortStep Enter(CohortId id, std::vector<RowSpan> rows) {
  return {.cohort = id, .rows = std::move(rows), .visits = {{kEntry, kEntry}}, .rides = true};
}

TEST(RequestBooksTest, StrategiesSeeWhatIsAsked) {
  BooksInUse use({8, 8});
  EXPECT_TRUE(use.books.empty());
  auto request = MakeRequest(1, 10, 20);
  request->flexible = true;
  request->sampling.num_prompt_top_logprobs = 0;
  use.books.Add(std::move(request), true);
  EXPECT_EQ(use.books.state().waiting, (WaitingQueue{{.id = 1,
                                                      .num_tokens = 10,
                                                      .num_computed = 0,
                                                      .flexible = true,
                                                      .final_tokens = 30,
                                                      .echo_from = 0}}));
  EXPECT_TRUE(use.AllFree());
}

TEST(RequestBooksTest, AFirstChunkAdmitsWithBlocksForAllTokens) {
  BooksInUse use({8, 8});
  for (RequestId id = 1; id <= 3; ++id) use.books.Add(MakeRequest(id, 9), true);
  const IterationPlan plan = MainPlan({Chunk(3, 0, 4, false, Tier::kCpu), Chunk(1, 0, 4, false)});
  EXPECT_TRUE(use.Apply(plan).empty());
  EXPECT_EQ(IdsOf(use.books.state().running), (std::vector<RequestId>{3, 1}));
  ASSERT_EQ(use.books.state().waiting.size(), 1U);
  EXPECT_EQ(use.books.state().waiting.front().id, 2U);
  EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 5);
  EXPECT_EQ(use.kv->free_blocks(Tier::kGpu), 5);
  // A plan that could not start comes again, with nothing computed.
  use.Apply(plan);
  EXPECT_EQ(use.books.state().running.size(), 2U);
  EXPECT_EQ(use.kv->free_blocks(Tier::kGpu), 5);
}

// Preempted first, then moved in turns, then admitted and grown: each needs the blocks of those before.
TEST(RequestBooksTest, BlocksArePassedOnWithinAPlan) {
  BooksInUse use({6, 3});
  use.AddDecoding(1, 8);
  use.AddDecoding(2, 9, Tier::kCpu);
  use.AddDecoding(3, 16);
  use.books.Add(MakeRequest(4, 12), true);
  ASSERT_EQ(use.kv->free_blocks(Tier::kGpu), 0);
  ASSERT_EQ(use.kv->free_blocks(Tier::kCpu), 0);
  IterationPlan plan = MainPlan({Chunk(4, 0, 12, true), CpuDecode(1, 8), GpuDecode(2, 9)});
  plan.preempted = {Preemption{3}};
  plan.moves = {{1, Tier::kCpu}, {2, Tier::kGpu}};
  ASSERT_TRUE(use.books.Validate(plan).ok()) << use.books.Validate(plan).error().message;
  const std::vector<int32_t> left_by_2 = use.kv->block_table(2);
  const std::vector<BlockMove> moves = use.Apply(plan);
  // The copy that empties the cpu tier's blocks goes before the one that fills them.
  ASSERT_EQ(moves.size(), 2U);
  EXPECT_EQ(moves[0].sequence, 2U);
  EXPECT_EQ(moves[0].source_blocks, left_by_2);
  EXPECT_EQ(moves[1].sequence, 1U);
  EXPECT_EQ(moves[1].destination_blocks.size(), 2U);  // without the one that it grows by
  EXPECT_EQ(use.num_swapped_tokens, 8 + 9);
  EXPECT_EQ(IdsOf(use.books.state().running), (std::vector<RequestId>{1, 2, 4}));
  EXPECT_EQ(use.kv->tier_of(1), Tier::kCpu);
  EXPECT_EQ(use.kv->held_blocks(1), 3);
  EXPECT_EQ(use.kv->tier_of(2), Tier::kGpu);
  EXPECT_EQ(use.kv->held_blocks(2), 3);
  EXPECT_EQ(use.kv->held_blocks(4), 3);
  EXPECT_EQ(use.kv->free_blocks(Tier::kGpu), 0);
  EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 0);
  EXPECT_EQ(use.books.RunningInCpuTier(), std::vector<RequestId>{1});
}

TEST(RequestBooksTest, PreemptedWaitInFrontWithWhatTheyHave) {
  BooksInUse use({8, 8});
  auto asks_echo = MakeRequest(1, 8);
  asks_echo->sampling.num_prompt_top_logprobs = 0;
  asks_echo->num_reported_prompt_logprobs = 5;
  use.AddRunning(std::move(asks_echo));
  use.AddDecoding(2, 8, Tier::kCpu);
  use.books.Add(MakeRequest(3, 8), true);
  IterationPlan plan;
  plan.preempted = {Preemption{2}, Preemption{1}};
  use.Apply(plan);
  EXPECT_TRUE(use.AllFree());
  EXPECT_TRUE(use.books.state().running.empty());
  EXPECT_EQ(use.books.state().waiting,
            (WaitingQueue{{.id = 1, .num_tokens = 8, .final_tokens = 24, .echo_from = 5},
                          {.id = 2, .num_tokens = 9, .final_tokens = 24},
                          {.id = 3, .num_tokens = 8, .final_tokens = 24}}));
  EXPECT_EQ(use.books.At(2).output_tokens, std::vector<int32_t>{7});
  EXPECT_EQ(use.books.At(2).num_preemptions, 1);
  EXPECT_EQ(use.books.At(3).num_preemptions, 0);
}

TEST(RequestBooksDeathTest, APlanThatIsTooLargeOrStrange) {
  BooksInUse use({2, 2});
  use.books.Add(MakeRequest(1, 9), true);
  EXPECT_DEATH(use.Apply(MainPlan({Chunk(1, 0, 9, true)})), "more blocks than the gpu tier has");
  EXPECT_DEATH(use.books.TakeToken(&use.books.At(1), 7), "sequence 1 is not running");
  EXPECT_DEATH(use.books.At(2), "request 2 is unknown");
}

TEST(RequestBooksTest, ARequestIsFirstScheduledOnce) {
  BooksInUse use({8, 8});
  const Clock::time_point first = use.now;
  for (RequestId id = 1; id <= 2; ++id) use.books.Add(MakeRequest(id, 9), true);
  use.Apply(MainPlan({Chunk(1, 0, 4, false)}));
  EXPECT_EQ(use.books.At(1).first_scheduled, first);
  EXPECT_EQ(use.books.At(2).first_scheduled, std::nullopt);
  use.now += std::chrono::seconds(1);
  IterationPlan preempts = MainPlan({Chunk(2, 0, 4, false)});
  preempts.preempted = {Preemption{1}};
  use.Apply(preempts);
  EXPECT_EQ(use.books.At(2).first_scheduled, use.now);
  use.now += std::chrono::seconds(1);
  use.Apply(MainPlan({Chunk(1, 0, 4, false)}));
  EXPECT_EQ(use.books.At(1).first_scheduled, first);
}

TEST(RequestBooksTest, ResultsReachTheQueueInAnyOrder) {
  BooksInUse use({8, 8});
  auto asks_echo = MakeRequest(1, 8);
  asks_echo->sampling.num_prompt_top_logprobs = 0;
  use.books.Add(std::move(asks_echo), true);
  use.AddDecoding(2, 8);
  use.AddDecoding(3, 8);
  use.Apply(MainPlan({RowSpan::Chunk(1, 0, 4, 0, Tier::kGpu)}));
  for (const RequestId id : {3, 2}) {
    use.books.TakeComputed(&use.books.At(id), 9);
    use.books.TakeToken(&use.books.At(id), static_cast<int32_t>(id));
  }
  Request& first = use.books.At(1);
  first.num_reported_prompt_logprobs = 4;
  use.books.TakeComputed(&first, 4);
  EXPECT_EQ(use.books.state().running,
            (std::vector<ScheduledSequence>{
                {.id = 2, .num_tokens = 10, .num_computed = 9, .final_tokens = 24},
                {.id = 3, .num_tokens = 10, .num_computed = 9, .final_tokens = 24},
                {.id = 1, .num_tokens = 8, .num_computed = 4, .final_tokens = 24, .echo_from = 4}}));
  EXPECT_EQ(use.books.At(3).output_tokens, (std::vector<int32_t>{7, 3}));
  // All is reported: nothing more is asked.
  first.num_reported_prompt_logprobs = 7;
  use.books.TakeComputed(&first, 8);
  EXPECT_EQ(use.books.state().running[2].echo_from, std::nullopt);
}

TEST(RequestBooksTest, CohortsAreKeptAmidATokenOnly) {
  BooksInUse use({8, 8});
  for (RequestId id = 1; id <= 3; ++id) use.AddDecoding(id, 8, Tier::kCpu);
  const CohortStep pair = Enter(5, CpuDecodes({{1, 8}, {2, 8}}));
  const CohortStep single = Enter(6, CpuDecodes({{3, 8}}));
  IterationPlan plan;
  plan.cohorts = {pair};
  use.Apply(plan);
  // Each row begins a block; what enters later does not have it yet.
  EXPECT_EQ(use.kv->held_blocks(2), 3);
  EXPECT_EQ(use.kv->held_blocks(3), 2);
  EXPECT_TRUE(use.books.state().cohorts.empty());  // until the iteration has ended
  use.books.MoveCohort(pair, 0);
  use.books.MoveCohort(single, 0);
  use.books.MoveCohort(pair, 2);
  EXPECT_EQ(use.books.state().cohorts, (std::vector<InFlightCohort>{{5, pair.rows, 2}, {6, single.rows, 0}}));
  EXPECT_EQ(use.books.CohortAloneWith(2), std::nullopt) << "1 is there too";
  EXPECT_EQ(use.books.CohortAloneWith(3), 6U);
  EXPECT_EQ(use.books.CohortAloneWith(4), std::nullopt);
  use.books.MoveCohort(pair, kEntry);  // its token is done
  EXPECT_EQ(use.books.state().cohorts.size(), 1U);
  use.books.MoveCohort(pair, 1);
  use.books.DropCohort(6);
  EXPECT_EQ(use.books.state().cohorts, (std::vector<InFlightCohort>{{5, pair.rows, 1}}));
  use.books.DropAllCohorts();
  EXPECT_TRUE(use.books.state().cohorts.empty());
  EXPECT_TRUE(use.books.state().cpu_tier_usable);
}

// A row of a cohort amid a token goes on for nobody, and its blocks are free when the token has come to its
// end, however that is.
TEST(RequestBooksTest, AForgottenRowOfACohortKeepsItsBlocksToTheEndOfTheToken) {
  for (const std::string end : {"token", "drop", "stall"}) {
    SCOPED_TRACE(end);
    BooksInUse use({8, 12});
    for (RequestId id = 1; id <= 3; ++id) use.AddDecoding(id, 8, Tier::kCpu);
    const CohortStep cohort = Enter(5, CpuDecodes({{1, 8}, {2, 8}, {3, 8}}));
    IterationPlan plan;
    plan.cohorts = {cohort};
    use.Apply(plan);
    use.books.MoveCohort(cohort, 1);
    EXPECT_TRUE(use.books.TakeReleased().empty());
    use.books.Forget(2);
    EXPECT_FALSE(use.books.contains(2));
    EXPECT_EQ(IdsOf(use.books.state().running), (std::vector<RequestId>{1, 3}));
    EXPECT_EQ(use.books.state().cohorts, (std::vector<InFlightCohort>{{5, cohort.rows, 1}}));
    EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 3);
    EXPECT_TRUE(use.books.TakeReleased().empty());
    EXPECT_EQ(use.books.CohortAloneWith(1), std::nullopt);
    use.books.Forget(1);
    EXPECT_EQ(use.books.CohortAloneWith(3), 5U);
    if (end == "token") use.books.MoveCohort(cohort, kEntry);
    if (end == "drop") use.books.DropCohort(5);
    if (end == "stall") {
      use.books.FailCpuTier();
      EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 3);
      EXPECT_TRUE(use.books.any_stalled());
      use.books.ReleaseStalled();
    }
    std::vector<RequestId> released = use.books.TakeReleased();
    std::sort(released.begin(), released.end());
    EXPECT_EQ(released, (std::vector<RequestId>{1, 2}));
    EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 9);
    use.books.Forget(3);
    EXPECT_EQ(use.books.TakeReleased(), (std::vector<RequestId>{3}));
    EXPECT_TRUE(use.AllFree());
    EXPECT_TRUE(use.books.empty());
  }
}

// 1 ends with the iteration that runs, which draws a token of 2 as well; 3 gets the blocks of 1 behind it.
TEST(RequestBooksTest, APlanThatIsEnqueuedAheadGetsTheBlocksOfWhoIsAboutToEnd) {
  BooksInUse use({4, 0});
  use.AddDecoding(1, 7);
  Request& second = use.AddDecoding(2, 7);
  use.Apply(MainPlan({GpuDecode(1, 7), GpuDecode(2, 7)}));
  use.books.Add(MakeRequest(3, 4), true);
  ASSERT_EQ(use.kv->free_blocks(Tier::kGpu), 0);
  ScheduleState ahead = use.books.state();
  ASSERT_EQ(ahead.running[1].id, 2U);
  ahead.running.erase(ahead.running.begin());
  ahead.running[0].num_computed = 8;
  ahead.running[0].num_tokens = 9;
  const IterationPlan plan = MainPlan({Chunk(3, 0, 4, true), GpuDecode(2, 8)});
  EXPECT_FALSE(use.books.Validate(plan).ok());
  EXPECT_TRUE(use.books.ValidateAhead(plan, ahead).ok());
  EXPECT_FALSE(use.books.ValidateAhead(MainPlan({GpuDecode(1, 8)}), ahead).ok());
  use.books.ReleaseEnding({1});
  use.Apply(plan);
  // The token to come has its place.
  EXPECT_EQ(use.kv->held_blocks(2), 3);
  EXPECT_EQ(use.kv->held_blocks(3), 1);
  // Results come as if nothing had been enqueued.
  use.books.TakeComputed(&use.books.At(1), 8);
  use.books.TakeToken(&use.books.At(1), 9);
  use.books.Forget(1);
  use.books.TakeComputed(&second, 8);
  use.books.TakeToken(&second, 9);
  EXPECT_EQ(use.books.state().running.size(), 2U);
  use.books.Forget(2);
  use.books.Forget(3);
  EXPECT_TRUE(use.AllFree());
}

TEST(RequestBooksTest, EndsByLengthOfOutputOrContext) {
  const BooksInUse use({8, 8});
  const auto few_wanted = MakeRequest(1, 8, 3);
  EXPECT_FALSE(use.books.EndsByLength(*few_wanted, 2));
  EXPECT_TRUE(use.books.EndsByLength(*few_wanted, 3));
  const auto long_prompt = MakeRequest(2, 60, 100);
  EXPECT_FALSE(use.books.EndsByLength(*long_prompt, 3));
  EXPECT_TRUE(use.books.EndsByLength(*long_prompt, 4));
}

TEST(RequestBooksTest, EndsTeachWhatTheWorkIsLike) {
  BooksInUse use({8, 8});
  auto begun = MakeRequest(1, 30);
  begun->num_made_tokens = 10;
  use.books.CountEnd(*begun, 30);
  EXPECT_DOUBLE_EQ(use.books.state().mean_output_tokens, 40);
  EXPECT_DOUBLE_EQ(use.books.state().prompt_tokens_per_output, 0.5);
  EXPECT_DOUBLE_EQ(use.books.state().mean_context, 20 + 40 / 2.0);
}

TEST(RequestBooksTest, ForgettingLeavesNothing) {
  BooksInUse use({8, 8});
  use.AddDecoding(1, 8);
  use.AddDecoding(2, 9, Tier::kCpu);
  use.Apply(MainPlan({GpuDecode(1, 8)}));  // has grown
  use.books.Add(MakeRequest(3, 8), true);
  use.books.Add(MakeRequest(4, 8), true);
  std::vector<RequestId> below = use.books.IdsBelow(4);
  std::sort(below.begin(), below.end());
  EXPECT_EQ(below, (std::vector<RequestId>{1, 2, 3}));
  for (const RequestId id : {1, 3, 2}) {
    use.books.Forget(id);
    EXPECT_FALSE(use.books.contains(id));
  }
  EXPECT_TRUE(use.AllFree());
  EXPECT_TRUE(use.books.state().running.empty());
  ASSERT_EQ(use.books.state().waiting.size(), 1U);
  use.books.Forget(4);
  EXPECT_TRUE(use.books.state().waiting.empty());
  EXPECT_TRUE(use.books.empty());
}

TEST(RequestBooksTest, AStallKeepsBlocksThatCpuAttentionMayWriteTo) {
  BooksInUse use({8, 8});
  use.AddDecoding(1, 8);
  use.AddDecoding(2, 12, Tier::kCpu);
  use.AddDecoding(3, 4, Tier::kCpu);
  use.books.Add(MakeRequest(4, 8), true);
  use.books.MoveCohort(Enter(5, CpuDecodes({{2, 12}})), 0);
  EXPECT_EQ(use.books.RunningInCpuTier(), (std::vector<RequestId>{2, 3}));
  use.books.FailCpuTier();
  EXPECT_TRUE(use.books.state().cohorts.empty());
  EXPECT_FALSE(use.books.state().cpu_tier_usable);
  use.books.Forget(1);
  use.books.Forget(4);
  EXPECT_EQ(use.kv->free_blocks(Tier::kGpu), 8);
  EXPECT_FALSE(use.books.any_stalled());
  use.books.Forget(2);
  EXPECT_TRUE(use.books.any_stalled());
  EXPECT_FALSE(use.books.contains(2));
  EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 4);
  use.books.ReleaseStalled();
  EXPECT_FALSE(use.books.any_stalled());
  EXPECT_TRUE(use.books.state().cpu_tier_usable);
  EXPECT_EQ(use.kv->free_blocks(Tier::kCpu), 7);
  use.books.Forget(3);  // as ever
  EXPECT_FALSE(use.books.any_stalled());
  EXPECT_TRUE(use.AllFree());
}

// Requests that begin amid their output, of 9 tokens: 3 blocks each.
class BegunTest : public ::testing::Test {
 protected:
  // Where the second request begins beside the first one of the gpu tier; nowhere: it waits.
  static std::optional<Tier> TierOfSecond(const std::array<int64_t, kNumTiers>& num_blocks,
                                          bool uses_cpu_tier = true, int64_t max_num_seqs = 8) {
    BooksInUse use(num_blocks, {.max_num_seqs = max_num_seqs, .reserve_blocks = 2});
    Add(1, 9, uses_cpu_tier, &use);
    EXPECT_EQ(use.kv->tier_of(1), Tier::kGpu);
    Add(2, 9, uses_cpu_tier, &use);
    EXPECT_EQ(use.books.state().running.size() + use.books.state().waiting.size(), 2U);
    EXPECT_EQ(use.books.state().waiting.empty(), use.kv->tier_of(2).has_value());
    return use.kv->tier_of(2);
  }
  static void Add(RequestId id, int64_t prompt_len, bool uses_cpu_tier, BooksInUse* use) {
    auto request = MakeRequest(id, prompt_len, 6);
    request->begun = true;
    request->num_made_tokens = 4;
    use->books.Add(std::move(request), uses_cpu_tier);
  }
};

TEST_F(BegunTest, TakesTheTierThatKeepsRoomToGrow) {
  // 2 reserved, and 1 for the sequence that is there already.
  EXPECT_EQ(TierOfSecond({3 + 3 + 3, 4}), Tier::kGpu);
  EXPECT_EQ(TierOfSecond({3 + 3 + 2, 4}), Tier::kCpu);
  // The cpu tier keeps one of up to a hundred free.
  EXPECT_EQ(TierOfSecond({8, 3}), std::nullopt);
  EXPECT_EQ(TierOfSecond({8, 100}, false), std::nullopt);
  EXPECT_EQ(TierOfSecond({100, 100}, true, 1), std::nullopt);
}

TEST_F(BegunTest, RunsAsADecodeAndCountsAsIfOthersHadEnded) {
  BooksInUse use({20, 20});
  Add(1, 9, true, &use);
  EXPECT_EQ(
      use.books.state().running,
      (std::vector<ScheduledSequence>{{.id = 1, .num_tokens = 9, .num_computed = 8, .final_tokens = 15}}));
  EXPECT_TRUE(use.books.Validate(MainPlan({GpuDecode(1, 8)})).ok());
  EXPECT_DOUBLE_EQ(use.books.state().mean_output_tokens, 6 + 4);
  // A single token has nothing before it.
  Add(2, 1, true, &use);
  EXPECT_EQ(use.books.state().waiting.size(), 1U);
  EXPECT_EQ(use.kv->held_blocks(2), 0);
}

TEST_F(BegunTest, DoesNotEnterACpuTierThatHasFailed) {
  BooksInUse use({2, 20});
  use.books.FailCpuTier();
  Add(1, 9, true, &use);
  EXPECT_EQ(use.books.state().waiting.size(), 1U);
  use.books.ReleaseStalled();
  Add(2, 9, true, &use);
  EXPECT_EQ(use.kv->tier_of(2), Tier::kCpu);
}

// What the validator is told of the books; its rules have tests of their own.
class ValidateTest : public ::testing::Test {
 protected:
  ValidateTest() {
    use_.AddDecoding(1, 8);
    use_.AddDecoding(2, 8, Tier::kCpu);
    use_.AddDecoding(3, 8, Tier::kCpu);
    use_.AddDecoding(6, 8, Tier::kCpu);
    auto asks_echo = MakeRequest(4, 40);
    asks_echo->sampling.num_prompt_top_logprobs = 0;
    asks_echo->num_reported_prompt_logprobs = 2;
    use_.books.Add(std::move(asks_echo), true);
    use_.books.MoveCohort(Enter(5, CpuDecodes({{3, 8}})), 1);
  }
  std::string ErrorOf(const IterationPlan& plan) const {
    const Status status = use_.books.Validate(plan);
    return status.ok() ? "" : status.error().message;
  }
  BooksInUse use_{{20, 20}};
};

TEST_F(ValidateTest, ARightPlanPasses) {
  IterationPlan plan = MainPlan({RowSpan::Chunk(4, 0, 8, 2, Tier::kGpu), GpuDecode(1, 8)});
  plan.cohorts = {
      Enter(6, CpuDecodes({{2, 8}})),
      {.cohort = 5, .rows = CpuDecodes({{3, 8}}), .cursor = 1, .visits = {{1, 1}}, .rides = true}};
  EXPECT_EQ(ErrorOf(plan), "");
}

TEST_F(ValidateTest, TheBooksContradictAWrongPlan) {
  const auto expect = [this](const IterationPlan& plan, const std::string& part) {
    EXPECT_NE(ErrorOf(plan).find(part), std::string::npos) << "\"" << ErrorOf(plan) << "\", not " << part;
  };
  expect(MainPlan({GpuDecode(9, 8)}), "sequence 9 is unknown");
  expect(MainPlan({GpuDecode(1, 7)}), "8 tokens are computed");
  expect(MainPlan({RowSpan::Chunk(1, 8, 2, 8, Tier::kGpu)}), "it has 9 tokens");
  expect(MainPlan({GpuDecode(2, 8)}), "its blocks are in the cpu tier");
  expect(MainPlan({Chunk(4, 0, 8, false)}), "those from 2 are wanted");
  expect(MainPlan({RowSpan::Chunk(4, 0, 33, 2, Tier::kGpu)}), "33 rows, at most 32");
  expect(MainPlan({CpuDecode(3, 8)}), "is in flight with cohort 5");
  IterationPlan plan = MainPlan({GpuDecode(1, 8)});
  plan.preempted = {Preemption{4}};
  expect(plan, "holds no blocks");
  plan.preempted.clear();
  plan.cohorts = {Enter(6, CpuDecodes({{2, 8}, {6, 8}}))};
  expect(plan, "2 rows ride at boundary -1, at most 1");
  CohortStep waited = Enter(6, CpuDecodes({{2, 8}}));
  waited.rides = false;
  waited.visits = {{-1, -1}, {0, 0}, {1, 1}, {3, 2}};
  plan.cohorts = {waited};
  expect(plan, "boundary 3 is out of order or range");  // there are 3 layers
}

std::unique_ptr<Request> MakeCachedRequest(const BlockHasher& hasher, RequestId id,
                                           const std::vector<int32_t>& prompt) {
  auto request = MakeRequest(id, 1);
  request->prompt_tokens = prompt;
  request->prefix_root = hasher.Root("");
  request->prompt_hashes = hasher.FullBlocks(*request->prefix_root, prompt);
  return request;
}

TEST(RequestBooksTest, WhoBeginsAlikeBeginsBehindWhatIsComputed) {
  const BlockHasher hasher({1, 2}, 4);
  BooksInUse use({16, 16}, {}, &hasher);
  // A prompt of 6, and 3 tokens of output, the last of which is not computed: two blocks are full.
  Request& first = use.AddRunning(MakeCachedRequest(hasher, 1, {1, 2, 3, 4, 5, 6}));
  for (const int32_t token : {7, 8, 9}) {
    use.books.TakeToken(&first, token);
    if (token == 9) break;
    use.Apply(MainPlan({GpuDecode(1, first.num_tokens() - 1)}));
    use.books.TakeComputed(&first, first.num_tokens());
  }
  EXPECT_EQ(use.kv->known_blocks(Tier::kGpu), 2);
  use.books.Add(MakeCachedRequest(hasher, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), true);
  EXPECT_EQ(use.kv->cached_prefix(2, Tier::kGpu, 9).num_blocks, 2);
  IterationPlan plan = MainPlan({Chunk(2, 8, 2, true)});
  plan.attached = {{.sequence = 2, .tier = Tier::kGpu, .num_tokens = 12}};
  EXPECT_EQ(use.books.Validate(plan).error().message,
            "sequence 2 is attached to 12 tokens, 8 are in the gpu tier");
  plan.attached[0].num_tokens = 8;
  ASSERT_TRUE(use.books.Validate(plan).ok());
  use.Apply(plan);
  const Request& second = use.books.At(2);
  EXPECT_EQ(second.num_computed_tokens, 8);
  EXPECT_EQ(second.num_cached_tokens, 8);
  EXPECT_EQ(second.first_scheduled, use.now);
  EXPECT_EQ(IdsOf(use.books.state().running), (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(use.books.state().running[1].num_computed, 8);
  EXPECT_TRUE(std::equal(use.kv->block_table(2).begin(), use.kv->block_table(2).begin() + 2,
                         use.kv->block_table(1).begin()));
  // Preempted, it finds them again, and whatever it had computed itself.
  IterationPlan preempt;
  preempt.preempted = {Preemption{2}};
  use.Apply(preempt);
  EXPECT_EQ(second.num_computed_tokens, 0);
  EXPECT_EQ(use.kv->cached_prefix(2, Tier::kGpu, 9).num_blocks, 2);
  use.books.Forget(1);
  use.books.Forget(2);
  EXPECT_TRUE(use.AllFree());
}

}  // namespace
}  // namespace tandem
