#include "planning/decode_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::SmallMachine;

// Four blocks of the gpu tier, all held: 1 lacks one, 2 does not, 3 is a prompt.
class FullGpuTierTest : public ::testing::Test {
 protected:
  FullGpuTierTest() {
    machine.capacity.total = {4, 2};
    machine.Decode(Tier::kGpu, 11);
    machine.Decode(Tier::kGpu, 10);
    machine.Begin(Tier::kGpu, 20, 10);
  }
  TierBooks MakeRoom() const {
    TierBooks books = machine.books();
    MakeRoomInGpuTier(machine.state, &books);
    EXPECT_GE(books.spare_blocks(Tier::kGpu), 0);
    return books;
  }

  SmallMachine machine;
};

TEST_F(FullGpuTierTest, TheYoungestDecodeGoesToTheCpuTier) {
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{2, Tier::kCpu}));
  EXPECT_THAT(MakeRoom().preempted(), IsEmpty());
}

TEST_F(FullGpuTierTest, ThoseInAHurryStay) {
  machine.running(1).flexible = true;
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{2, Tier::kCpu})) << "nobody is without a limit";
  machine.state.limits.max_tpot_us = 1000;
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{1, Tier::kCpu}));
}

TEST_F(FullGpuTierTest, WithoutRoomInEitherTierTheYoungestIsPreempted) {
  const auto preempted = [](PreemptionReason reason) { return ElementsAre(Preemption{3, reason}); };
  machine.capacity.total = {4, 0};
  EXPECT_THAT(MakeRoom().moves(), IsEmpty());
  EXPECT_THAT(MakeRoom().preempted(), preempted(PreemptionReason::kGpuTierFull));
  machine.capacity.total = {4, 2};
  machine.state.cpu_tier_usable = false;
  EXPECT_THAT(MakeRoom().preempted(), preempted(PreemptionReason::kCpuTierUnusable));
  machine.state.cpu_tier_usable = true;
  machine.Decode(Tier::kCpu, 20);
  EXPECT_THAT(MakeRoom().preempted(), preempted(PreemptionReason::kBothTiersFull));
}

// Three blocks of the cpu tier, all held: 1 lacks one.
class FullCpuTierTest : public ::testing::Test {
 protected:
  FullCpuTierTest() {
    machine.capacity.total = {100, 3};
    machine.Decode(Tier::kCpu, 11);
    machine.Decode(Tier::kCpu, 20);
  }
  TierBooks MakeRoom() const {
    TierBooks books = machine.books();
    MakeRoomInCpuTier(machine.state, &books);
    EXPECT_GE(books.spare_blocks(Tier::kCpu), 0);
    return books;
  }

  SmallMachine machine;
};

// Beside one decode, which takes four blocks in 32 iterations, and with one to spare.
TEST_F(FullCpuTierTest, TheYoungestIsSwappedInIfTheGpuTierHasAmpleRoom) {
  machine.Decode(Tier::kGpu, 10);
  machine.capacity.total = {8, 3};
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{2, Tier::kGpu}));
  machine.capacity.total = {7, 3};
  const auto youngest = ElementsAre(Preemption{2, PreemptionReason::kBothTiersFull});
  EXPECT_THAT(MakeRoom().preempted(), youngest);
  machine.capacity.total = {8, 3};
  machine.state.limits.reserve_blocks = 1;
  EXPECT_THAT(MakeRoom().preempted(), youngest);
}

TEST_F(FullCpuTierTest, APromptThatIsBegunCannotGoElsewhere) {
  machine.capacity.total = {100, 5};
  machine.Begin(Tier::kCpu, 20, 10);
  EXPECT_THAT(MakeRoom().preempted(), ElementsAre(Preemption{3, PreemptionReason::kCpuTierFull}));
}

TEST_F(FullCpuTierTest, AmidATokenTheyLeaveOnlyIfNobodyElseCan) {
  machine.PutInFlight(4, 0, {2});
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{1, Tier::kGpu}));
  EXPECT_THAT(MakeRoom().dropped(), IsEmpty());
  machine.PutInFlight(5, 1, {1});
  EXPECT_THAT(MakeRoom().dropped(), ElementsAre(4));
  EXPECT_THAT(MakeRoom().moves(), ElementsAre(Move{2, Tier::kGpu}));
}

TEST_F(FullCpuTierTest, InAnUnusableTierNothingGrowsAndPromptsCannotGoOn) {
  machine.capacity.total = {100, 5};
  machine.Begin(Tier::kCpu, 20, 10);
  machine.state.cpu_tier_usable = false;
  EXPECT_THAT(MakeRoom().preempted(), ElementsAre(Preemption{3, PreemptionReason::kCpuTierUnusable}));
  EXPECT_THAT(MakeRoom().moves(), IsEmpty());
}

// A layer of one gpu decode takes 101 us, a copy of 10 tokens 50 us.
class SwapInTest : public ::testing::Test {
 protected:
  SwapInTest() {
    machine.costs.swap_ns = 5000;
    machine.Decode(Tier::kGpu, 10);
    machine.Decode(Tier::kCpu, 10, 3);
    for (const SequenceId id : {2, 3, 4}) machine.running(id).final_tokens = id == 3 ? 40 : 20;
  }
  std::vector<Move> Moves(int64_t min_cpu_sequences = 0) const {
    TierBooks books = machine.books();
    SwapIn(machine.state, machine.costs, {.min_cpu_sequences = min_cpu_sequences}, &books);
    return books.moves();
  }

  SmallMachine machine;
};

TEST_F(SwapInTest, TheMostTokensLeftForEachMovedThenTheOldestWhileCopiesHide) {
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}, Move{2, Tier::kGpu}));
  machine.costs.swap_ns = 50e3;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu})) << "one in any case";
  machine.costs.swap_ns = 0;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}, Move{2, Tier::kGpu}, Move{4, Tier::kGpu}));
}

// Amid a token those with the most left come too: in the gpu tier they make one in every iteration. The
// others of the cohort begin theirs again. Not for who makes room in the cpu tier for others.
TEST_F(SwapInTest, AmidATokenTheyComeAndTheirCohortIsDropped) {
  machine.costs.swap_ns = 50e3;
  machine.PutInFlight(8, 0, {3, 4});
  TierBooks books = machine.books();
  SwapIn(machine.state, machine.costs, {}, &books);
  EXPECT_THAT(books.moves(), ElementsAre(Move{3, Tier::kGpu}));
  EXPECT_THAT(books.dropped(), ElementsAre(8));
  EXPECT_TRUE(books.sequences()[3].may_leave()) << "nothing keeps 4 any more";
  books = machine.books();
  SwapIn(machine.state, machine.costs, {.min_cpu_sequences = 1}, &books);
  EXPECT_THAT(books.moves(), ElementsAre(Move{2, Tier::kGpu}));
  EXPECT_THAT(books.dropped(), IsEmpty());
}

// Without room nobody loses what is done of a token.
TEST_F(SwapInTest, ACohortIsNotDroppedForNothing) {
  machine.PutInFlight(8, 0, {2, 3, 4});
  machine.capacity.total = {1 + 1 + 4, 100};
  TierBooks books = machine.books();
  SwapIn(machine.state, machine.costs, {}, &books);
  EXPECT_THAT(books.moves(), IsEmpty());
  EXPECT_THAT(books.dropped(), IsEmpty());
}

TEST_F(SwapInTest, ThoseInAHurryFirst) {
  machine.state.limits.max_tpot_us = 1000;
  machine.running(3).flexible = true;
  EXPECT_THAT(Moves(), ElementsAre(Move{2, Tier::kGpu}, Move{4, Tier::kGpu}));
}

TEST_F(SwapInTest, TheCpuTierKeepsItsShareAndTheGpuTierItsRows) {
  EXPECT_THAT(Moves(2), ElementsAre(Move{3, Tier::kGpu}));
  EXPECT_THAT(Moves(3), IsEmpty());
  machine.state.limits.max_num_batched_tokens = 2;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}));
}

// A decode takes four blocks in 32 iterations, two take seven: with one to spare nobody is swapped out again
// before that.
TEST_F(SwapInTest, NobodyThatWouldSoonLeaveAgain) {
  machine.capacity.total = {1 + 1 + 4 + 1, 100};
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}));
  machine.capacity.total = {1 + 1 + 4, 100};
  EXPECT_THAT(Moves(), IsEmpty());
  machine.tuning.iterations_ahead = 20;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}));
}

// A prompt would be let in behind a block for the one that decodes there: outputs are 8 tokens on average.
TEST_F(SwapInTest, WhereNobodyIsWantedInTheCpuTierTheyComeBackInOrderLikePrompts) {
  machine.state.mean_output_tokens = 8;
  machine.tuning.most_kept_of_tier = 1;
  const auto moves = [&] {
    TierBooks books = machine.books();
    SwapIn(machine.state, machine.costs, {.like_prompts = true}, &books);
    return books.moves();
  };
  machine.capacity.total = {1 + 1 + 1, 100};
  EXPECT_THAT(Moves(), IsEmpty());
  EXPECT_THAT(moves(), ElementsAre(Move{2, Tier::kGpu}));
  machine.capacity.total = {1 + 1, 100};
  EXPECT_THAT(moves(), IsEmpty());
  // Nobody passes the first one, which takes three blocks.
  machine.running(2).num_tokens = 21;
  machine.running(2).num_computed = 20;
  machine.capacity.total = {1 + 1 + 1, 100};
  EXPECT_THAT(moves(), IsEmpty());
  machine.capacity.total = {1 + 3 + 1, 100};
  EXPECT_THAT(moves(), ElementsAre(Move{2, Tier::kGpu}));
}

TEST_F(SwapInTest, LikePromptsTheyNeverNeedMoreThanAmpleRoom) {
  machine.state.mean_output_tokens = 1000;
  machine.tuning.most_kept_of_tier = 1;
  machine.capacity.total = {1 + 1 + 4 + 1, 100};
  TierBooks books = machine.books();
  SwapIn(machine.state, machine.costs, {.like_prompts = true}, &books);
  EXPECT_THAT(books.moves(), ElementsAre(Move{2, Tier::kGpu}));
}

// Of 99 free blocks some hold what the cpu tier has not got yet.
TEST_F(SwapInTest, WhatIsToBeCopiedIsNotPushedOut) {
  machine.state.cached_share = 0.5;
  machine.capacity.unused = 80;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}, Move{2, Tier::kGpu}));
  machine.capacity.unused = 95;
  EXPECT_THAT(Moves(), IsEmpty());
  machine.state.cached_share = 0;
  EXPECT_THAT(Moves(), ElementsAre(Move{3, Tier::kGpu}, Move{2, Tier::kGpu}));
}

TEST_F(SwapInTest, NobodyBesideAPreemptionOrASwapOut) {
  TierBooks books = machine.books();
  books.Preempt(1, PreemptionReason::kGpuTierFull);
  SwapIn(machine.state, machine.costs, {}, &books);
  EXPECT_THAT(books.moves(), IsEmpty());
  books = machine.books();
  books.MoveTo(0, Tier::kCpu);
  SwapIn(machine.state, machine.costs, {}, &books);
  EXPECT_THAT(books.moves(), ElementsAre(Move{1, Tier::kCpu}));
}

}  // namespace
}  // namespace tandem
