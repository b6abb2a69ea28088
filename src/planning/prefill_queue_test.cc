#include "planning/prefill_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "plan/plan_testing.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::IdsOf;
using ::testing::IsEmpty;
using testing::SmallMachine;

class PrefillQueueTest : public ::testing::Test {
 protected:
  PrefillQueue Queue(int64_t max_rows = 1000) const { return Queue(machine.books(), max_rows); }
  PrefillQueue Queue(TierBooks books, int64_t max_rows = 1000) const {
    return {machine.state, machine.costs, rules, max_rows, &books};
  }
  std::vector<RowSpan> Chunks(int64_t max_rows = 1000) const {
    return testing::ChunksOf(Queue(max_rows), max_rows);
  }

  SmallMachine machine;
  AdmissionRules rules = {.max_cpu_sequences = 10};
};

TEST_F(PrefillQueueTest, ThoseBegunGoFirstAndABudgetTakesAPrefix) {
  machine.Wait(40);
  machine.Wait(50);
  machine.Begin(Tier::kGpu, 30, 10);
  machine.Decode(Tier::kGpu, 10);
  const PrefillQueue queue = Queue();
  EXPECT_EQ(queue.num_tokens(), 110);
  EXPECT_EQ(queue.num_begun_tokens(), 20);
  EXPECT_EQ(queue.mean_prompt(), 40);
  EXPECT_EQ(queue.num_gpu_prompts(), 3);
  EXPECT_TRUE(queue.ends_prompts());
  EXPECT_THAT(testing::ChunksOf(queue, 110),
              ElementsAre(Chunk(3, 10, 20, true), Chunk(1, 0, 40, true), Chunk(2, 0, 50, true)));
  EXPECT_THAT(testing::ChunksOf(queue, 30), ElementsAre(Chunk(3, 10, 20, true), Chunk(1, 0, 10, false)));
  EXPECT_THAT(testing::ChunksOf(queue, 0), IsEmpty());
  const PrefillQueue cut = Queue(25);
  EXPECT_EQ(cut.num_tokens(), 25);
  EXPECT_FALSE(cut.ends_prompts());
  EXPECT_THAT(IdsOf(testing::ChunksOf(cut, 25)), ElementsAre(3, 1));
}

TEST_F(PrefillQueueTest, BlocksAreTakenForWholePrompts) {
  machine.Wait(95);
  TierBooks books = machine.books();
  const PrefillQueue queue(machine.state, machine.costs, rules, 20, &books);
  EXPECT_EQ(queue.num_tokens(), 20);
  EXPECT_EQ(books.free_blocks(Tier::kGpu), 90);
  EXPECT_EQ(books.num_sequences(Tier::kGpu), 1);
}

// 20 blocks, of which a decode holds one: 14 and a reserve of five are free, 15 are not.
TEST_F(PrefillQueueTest, OthersInTheGpuTierKeepAReserve) {
  machine.capacity.total = {20, 0};
  machine.Wait(150);
  EXPECT_EQ(Chunks().size(), 1U);
  machine.Decode(Tier::kGpu, 10);
  EXPECT_EQ(Chunks().size(), 1U);
  machine.state.limits.reserve_blocks = 5;
  EXPECT_THAT(Chunks(), IsEmpty());
  machine.state.waiting = {{.id = 9, .num_tokens = 140}};
  EXPECT_EQ(Chunks().size(), 1U);
}

// 50 blocks, of which a decode holds one.
TEST_F(PrefillQueueTest, RoomToGrowIsKeptAsFarAsItIsWorth) {
  machine.capacity.total = {50, 0};
  machine.Decode(Tier::kGpu, 10);
  machine.state.mean_output_tokens = 200;
  const auto admits = [&](int64_t num_tokens) {
    machine.state.waiting = {{.id = 9, .num_tokens = num_tokens}};
    return !Chunks().empty();
  };
  EXPECT_TRUE(admits(430)) << "an eighth: who is pushed out goes to the cpu tier";
  EXPECT_FALSE(admits(440));
  rules.decodes_per_recomputed = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(admits(290)) << "20 blocks for an output";
  EXPECT_FALSE(admits(300));
  // 45 or 46 decoded tokens of it pay for computing it again: two requests take ten blocks for as many, and
  // one of those is the last that each has begun.
  rules.decodes_per_recomputed = 0.11;
  EXPECT_TRUE(admits(390));
  EXPECT_FALSE(admits(420));
  rules.decodes_per_recomputed = 0;
  EXPECT_TRUE(admits(490));
}

TEST_F(PrefillQueueTest, OthersInTheCpuTierCanGrow) {
  machine.capacity.total = {0, 9};
  machine.Decode(Tier::kCpu, 10);
  machine.Wait(40);  // and four blocks for 32 tokens
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(2, 0, 40, true, Tier::kCpu)));
  machine.capacity.total = {0, 8};
  EXPECT_THAT(Chunks(), IsEmpty());
}

TEST_F(PrefillQueueTest, NobodyOvertakes) {
  machine.capacity.total = {5, 0};
  machine.Begin(Tier::kGpu, 20, 10);
  machine.Wait(40);
  machine.Wait(10);
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(1));
}

TEST_F(PrefillQueueTest, NoMoreSequencesThanAllowed) {
  machine.Decode(Tier::kGpu, 10, 2);
  machine.Wait(10, 5);
  machine.state.limits.max_num_seqs = 4;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(3, 4));
}

TEST_F(PrefillQueueTest, TheGpuTierFirstThenTheCpuTierUpToItsTarget) {
  machine.capacity.total = {10, 100};
  machine.Wait(60, 4);
  rules.max_cpu_sequences = 2;
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 0, 60, true), Chunk(2, 0, 60, true, Tier::kCpu),
                                    Chunk(3, 0, 60, true, Tier::kCpu)));
  rules.to_gpu = false;
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 0, 60, true, Tier::kCpu), Chunk(2, 0, 60, true, Tier::kCpu)));
  rules = {.to_cpu = false, .max_cpu_sequences = 2};
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 0, 60, true)));
  rules = {.max_cpu_sequences = 0};
  machine.state.waiting = {{.id = 9, .num_tokens = 110}};
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(9, 0, 110, true, Tier::kCpu))) << "no other tier can ever hold it";
}

TEST_F(PrefillQueueTest, CpuFirstIsTheGpuTierForWhatTheOtherCanNeverHold) {
  machine.capacity.total = {50, 20};
  rules.cpu_first = true;
  machine.Wait(100);
  machine.Wait(210);
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 0, 100, true, Tier::kCpu), Chunk(2, 0, 210, true)));
  machine.state.limits.max_transit_tokens = 90;
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 0, 100, true), Chunk(2, 0, 210, true)));
}

// The whole contexts of chunks to the cpu tier pass through a buffer of 400 tokens, in whole blocks.
TEST_F(PrefillQueueTest, ContextsOfTheCpuTierPassThroughTheTransitBuffer) {
  machine.capacity.total = {0, 100};
  machine.Begin(Tier::kCpu, 205, 150);
  machine.Wait(105);
  machine.Wait(150);
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 150, 55, true, Tier::kCpu), Chunk(2, 0, 105, true, Tier::kCpu),
                                    Chunk(3, 0, 80, false, Tier::kCpu)));
  machine.state.limits.max_transit_tokens = 150;
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(2, 0, 105, true, Tier::kCpu), Chunk(3, 0, 40, false, Tier::kCpu)))
      << "the buffer holds what is there of the first, and no token more";
}

TEST_F(PrefillQueueTest, AnUnusableCpuTierTakesNoToken) {
  machine.capacity.total = {0, 100};
  machine.Begin(Tier::kCpu, 20, 10);
  machine.Wait(10);
  machine.state.cpu_tier_usable = false;
  EXPECT_THAT(Chunks(), IsEmpty());
}

// Who begins would only push out the next one.
TEST_F(PrefillQueueTest, NobodyBeginsBesideAPreemptionOrASwapOut) {
  machine.Decode(Tier::kGpu, 10);
  machine.Begin(Tier::kGpu, 20, 10);
  machine.Begin(Tier::kGpu, 20, 10);
  machine.Wait(10);
  TierBooks books = machine.books();
  books.Preempt(2, PreemptionReason::kGpuTierFull);
  EXPECT_THAT(IdsOf(testing::ChunksOf(Queue(books), 100)), ElementsAre(2));
  books = machine.books();
  books.MoveTo(0, Tier::kCpu);
  EXPECT_THAT(IdsOf(testing::ChunksOf(Queue(books), 100)), ElementsAre(2, 3));
}

// A pair of query and key token takes 1 us.
TEST_F(PrefillQueueTest, ABudgetIsAddedToALoad) {
  machine.costs.prefill_ns = 1000;
  machine.capacity.total = {3, 100};
  machine.Begin(Tier::kGpu, 30, 20);
  machine.Wait(40, 2);
  const PrefillQueue queue = Queue();
  EXPECT_EQ(queue.num_tokens_to_last_gpu_chunk(), 10);
  IterationLoad load = {.num_sampled = 5};
  queue.AddTo(60, machine.costs, &load);
  EXPECT_EQ(load.prefill_tokens, 60);
  EXPECT_DOUBLE_EQ(load.prefill_attention_us, 10 * 25 + 40 * 20 + 10 * 5);
  EXPECT_EQ(load.num_sampled, 5 + 2);
  EXPECT_EQ(load.swapped_tokens, 50);
}

// A layer copies 150 + n tokens with a chunk of n, 1 us each, and computes them in 3 us each, 100 at least.
TEST_F(PrefillQueueTest, NoBudgetCutsASliverOffALongContext) {
  machine.capacity.total = {6, 100};
  machine.costs.swap_ns = 1000;
  machine.costs.linear_token_us = 3;
  machine.Begin(Tier::kGpu, 50, 20);
  machine.Begin(Tier::kCpu, 305, 150);
  const PrefillQueue queue = Queue();
  EXPECT_EQ(queue.num_tokens(), 30 + 155);
  for (const auto& [budget, wanted] :
       {std::pair{0, 0}, {1, 1}, {30, 30}, {31, 105}, {105, 105}, {106, 106}, {185, 185}})
    EXPECT_EQ(queue.WithoutSliver(budget, machine.costs), wanted) << budget;
  machine.costs.swap_ns = 500;
  EXPECT_EQ(Queue().WithoutSliver(31, machine.costs), 31) << "a single one takes longer than the copies";
}

TEST_F(PrefillQueueTest, WhoBeginsWithACachedPrefixBeginsBehindIt) {
  machine.Wait(95);
  machine.capacity.cached[{1, Tier::kGpu}] = {.num_blocks = 4, .num_unused = 1};
  TierBooks books = machine.books();
  const PrefillQueue queue(machine.state, machine.costs, rules, 1000, &books);
  EXPECT_EQ(queue.num_tokens(), 55);
  EXPECT_EQ(queue.mean_prompt(), 55);
  // Three of its ten blocks are others' too.
  EXPECT_EQ(books.free_blocks(Tier::kGpu), 93);
  IterationPlan plan;
  queue.Write(20, &plan);
  EXPECT_THAT(plan.main.spans, ElementsAre(Chunk(1, 40, 20, false)));
  EXPECT_THAT(plan.attached,
              ElementsAre(AttachedPrefix{.sequence = 1, .tier = Tier::kGpu, .num_tokens = 40}));
  EXPECT_THAT(plan.moves, IsEmpty());
  IterationPlan without;
  queue.Write(0, &without);
  EXPECT_TRUE(without.empty());
}

TEST_F(PrefillQueueTest, ALongerPrefixComesFromTheOtherTier) {
  machine.Wait(95, 2);
  machine.capacity.cached[{1, Tier::kGpu}] = {.num_blocks = 2, .num_unused = 0};
  machine.capacity.cached[{1, Tier::kCpu}] = {.num_blocks = 7, .num_unused = 5};
  machine.capacity.cached[{2, Tier::kGpu}] = {.num_blocks = 7, .num_unused = 7};
  machine.capacity.cached[{2, Tier::kCpu}] = {.num_blocks = 7, .num_unused = 7};
  TierBooks books = machine.books();
  const PrefillQueue queue(machine.state, machine.costs, rules, 1000, &books);
  IterationPlan plan;
  queue.Write(1000, &plan);
  EXPECT_THAT(plan.main.spans, ElementsAre(Chunk(1, 70, 25, true), Chunk(2, 70, 25, true)));
  EXPECT_THAT(plan.attached,
              ElementsAre(AttachedPrefix{.sequence = 1, .tier = Tier::kCpu, .num_tokens = 70},
                          AttachedPrefix{.sequence = 2, .tier = Tier::kGpu, .num_tokens = 70}));
  EXPECT_THAT(plan.moves, ElementsAre(Move{1, Tier::kGpu}));
  EXPECT_EQ(books.free_blocks(Tier::kGpu), 100 - 8 - 10);
  EXPECT_EQ(books.free_blocks(Tier::kCpu), 95) << "held until it has moved";
}

TEST_F(PrefillQueueTest, APrefixWhoseBlocksWereJustGivenOutIsNotTakenAway) {
  machine.Decode(Tier::kGpu, 880);
  machine.Wait(95, 2);
  // Nobody uses them, so they count as free: the second could take them along only if the first left them.
  machine.capacity.cached[{3, Tier::kGpu}] = {.num_blocks = 7, .num_unused = 7};
  TierBooks books = machine.books();
  const PrefillQueue queue(machine.state, machine.costs, rules, 1000, &books);
  IterationPlan plan;
  queue.Write(1000, &plan);
  EXPECT_THAT(plan.main.spans, ElementsAre(Chunk(2, 0, 95, true)));
  EXPECT_THAT(plan.attached, IsEmpty());
  EXPECT_GE(books.spare_blocks(Tier::kGpu), 0);
  // Where they are in use anyway it is no matter.
  machine.capacity.cached[{3, Tier::kGpu}] = {.num_blocks = 7, .num_unused = 0};
  IterationPlan both;
  Queue().Write(1000, &both);
  EXPECT_THAT(both.moves, ElementsAre(Move{3, Tier::kCpu}));
}

TEST_F(PrefillQueueTest, WhereTheGpuTierIsFullAPrefixIsUsedInTheCpuTier) {
  machine.Decode(Tier::kGpu, 990);
  machine.Wait(95);
  machine.capacity.cached[{2, Tier::kCpu}] = {.num_blocks = 6, .num_unused = 0};
  IterationPlan plan;
  Queue().Write(1000, &plan);
  EXPECT_THAT(plan.main.spans, ElementsAre(Chunk(2, 60, 35, true, Tier::kCpu)));
  EXPECT_THAT(plan.attached,
              ElementsAre(AttachedPrefix{.sequence = 2, .tier = Tier::kCpu, .num_tokens = 60}));
  EXPECT_THAT(plan.moves, IsEmpty());
  // Out of use, it has none.
  machine.state.cpu_tier_usable = false;
  machine.capacity.total[0] = 300;
  IterationPlan without;
  Queue().Write(1000, &without);
  EXPECT_THAT(without.main.spans, ElementsAre(Chunk(2, 0, 95, true)));
}

// Rows that give logits are computed: the last token's, or those that are asked for.
TEST_F(PrefillQueueTest, APrefixEndsBeforeTheFirstLogits) {
  machine.Wait(80, 2);
  for (const SequenceId id : {1, 2}) machine.capacity.cached[{id, Tier::kGpu}] = {.num_blocks = 8};
  machine.state.waiting = {{.id = 1, .num_tokens = 80}, {.id = 2, .num_tokens = 80, .echo_from = 35}};
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 70, 10, true), RowSpan::Chunk(2, 30, 50, 35, Tier::kGpu)));
}

// Longer than the gpu tier, and the cpu tier has no room yet. Those behind it that want that room too do not
// pass.
TEST_F(PrefillQueueTest, WhoWaitsForBlocksOfTheCpuTierIsPassedByTheNextFewForTheGpuTier) {
  machine.capacity.total = {25, 100};
  machine.Decode(Tier::kCpu, 900);
  machine.Wait(350);     // 2
  machine.Wait(100);     // 3
  machine.Wait(350);     // 4
  machine.Wait(100);     // 5
  machine.Wait(100, 2);  // 6 finds no room in the gpu tier, and may not have what 2 waits for
  rules.max_cpu_sequences = 10;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(3, 5));
  machine.tuning.most_that_pass = 1;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(3));
  machine.tuning.most_that_pass = 0;
  EXPECT_THAT(Chunks(), IsEmpty());
  machine.capacity.held.clear();
  machine.state.running.clear();
  EXPECT_THAT(IdsOf(Chunks()), Contains(2)) << "there is room now";
}

// 100 blocks, of which decodes hold 50 and 30 more hold what the cpu tier has not got yet.
TEST_F(PrefillQueueTest, WhatIsToBeCopiedIsNotPushedOut) {
  machine.Decode(Tier::kGpu, 500);
  machine.Wait(200);  // 2
  machine.Wait(10);   // 3
  machine.capacity.unused = 30;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(2, 3)) << "prompts have not begun alike of late";
  machine.state.cached_share = 0.5;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(2)) << "nobody passes";
  machine.capacity.unused = 31;
  EXPECT_THAT(IdsOf(Chunks()), IsEmpty());
  machine.capacity.unused = 25;
  machine.state.waiting = {{.id = 2, .num_tokens = 400}};
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(2)) << "a quarter of the tier can be given out: no more is copied";
  machine.capacity.unused = 45;
  EXPECT_THAT(IdsOf(Chunks()), IsEmpty());
  machine.state.running.clear();
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(2)) << "no iteration copies beside nobody";
}

TEST_F(PrefillQueueTest, WhatIsBeingComputedIsWaitedFor) {
  machine.Begin(Tier::kGpu, 90, 40);
  machine.Wait(60, 3);
  machine.capacity.coming = {{2, 5}};
  machine.capacity.alike = {{{2, 1}, 5}, {{4, 3}, 4}};
  machine.capacity.cached[{2, Tier::kGpu}] = {.num_blocks = 4, .num_unused = 0};
  machine.capacity.cached[{4, Tier::kGpu}] = {.num_blocks = 4, .num_unused = 0};
  // 1 computes the fifth block of 2; what 4 and 3 have in common is there.
  EXPECT_THAT(Chunks(), ElementsAre(Chunk(1, 40, 50, true), Chunk(3, 0, 60, true), Chunk(4, 40, 20, true)));
  machine.capacity.cached[{2, Tier::kGpu}].num_blocks = 5;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(1, 2, 3, 4));
  // Two that are admitted at once.
  machine.capacity.cached.clear();
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(1, 3));
  machine.tuning.most_passed_over = 1;
  EXPECT_THAT(IdsOf(Chunks()), ElementsAre(1));
}

}  // namespace
}  // namespace tandem
