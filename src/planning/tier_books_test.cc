#include "planning/tier_books.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::SmallMachine;

TEST(TierBooksTest, CountWhatCapacitySaysAndWhatDecodesLack) {
  SmallMachine machine;
  machine.Decode(Tier::kGpu, 11);  // of one block full, lacks another
  machine.Decode(Tier::kGpu, 15);
  machine.Decode(Tier::kCpu, 21);
  machine.Begin(Tier::kCpu, 25, 10);
  const TierBooks books = machine.books();
  EXPECT_EQ(books.free_blocks(Tier::kGpu), 97);
  EXPECT_EQ(books.growth(Tier::kGpu), 1);
  EXPECT_EQ(books.spare_blocks(Tier::kGpu), 96);
  EXPECT_EQ(books.free_blocks(Tier::kCpu), 95);
  EXPECT_EQ(books.spare_blocks(Tier::kCpu), 94);
  EXPECT_EQ(books.num_sequences(Tier::kCpu), 2);
  EXPECT_EQ(books.num_decodes(Tier::kCpu), 1);
  EXPECT_EQ(books.num_sequences(), 4);
  // 32 iterations of two decodes are 64 tokens.
  EXPECT_EQ(books.GrowthAhead(Tier::kGpu), 7);
}

TEST(TierBooksTest, WhoHasNoRowDoesNotGrow) {
  SmallMachine machine;
  machine.Decode(Tier::kGpu, 11, 3);
  machine.Decode(Tier::kCpu, 11, 3);
  machine.state.limits.max_num_batched_tokens = 2;
  EXPECT_EQ(machine.books().growth(Tier::kGpu), 2);
  EXPECT_EQ(machine.books().growth(Tier::kCpu), 3);
  machine.state.cpu_tier_usable = false;
  EXPECT_EQ(machine.books().growth(Tier::kCpu), 0);
}

// Whole partitions that hold no new token, with the one before it of the same beginning and tier.
TEST(TierBooksTest, DecodesKnowWhatTheyShareWithThoseBeforeThem) {
  SmallMachine machine;
  machine.capacity.total = {1000, 1000};
  machine.Decode(Tier::kCpu, 1600, 2);
  machine.Decode(Tier::kGpu, 1600);
  machine.Decode(Tier::kCpu, 1024);
  machine.Decode(Tier::kCpu, 1600, 2);
  for (const SequenceId id : {1, 2, 3, 4, 6}) machine.running(id).beginning = 77;
  machine.running(5).beginning = 78;
  machine.capacity.shared = {{{1, 2}, 1500}, {{2, 4}, 1024}, {{4, 6}, 500}};
  const TierBooks books = machine.books();
  std::vector<int64_t> num_shared;
  std::vector<bool> shares;
  for (const RunningSequence& each : books.sequences()) {
    num_shared.push_back(each.num_shared);
    shares.push_back(each.shares);
  }
  EXPECT_THAT(num_shared, ElementsAre(0, 1024, 0, 512, 0, 0));
  EXPECT_THAT(shares, ElementsAre(true, true, false, true, false, false));
}

TEST(TierBooksTest, WhoMovesNeedsRoomForAllItsTokens) {
  SmallMachine machine;
  machine.Decode(Tier::kGpu, 11);
  machine.Decode(Tier::kCpu, 31);
  TierBooks books = machine.books();
  books.MoveTo(1, Tier::kGpu);
  EXPECT_FALSE(books.any_swapped_out());
  EXPECT_FALSE(books.sequences()[1].may_leave());
  EXPECT_EQ(books.spare_blocks(Tier::kGpu), 100 - 2 - 4);
  EXPECT_EQ(books.spare_blocks(Tier::kCpu), 100);
  EXPECT_EQ(books.num_decodes(Tier::kGpu), 2);
  books.MoveTo(0, Tier::kCpu);
  EXPECT_TRUE(books.any_swapped_out());
  EXPECT_EQ(books.free_blocks(Tier::kCpu), 98);
  EXPECT_EQ(books.growth(Tier::kCpu), 0);
  EXPECT_EQ(books.growth(Tier::kGpu), 0);
  EXPECT_THAT(books.moves(), ElementsAre(Move{2, Tier::kGpu}, Move{1, Tier::kCpu}));
}

TEST(TierBooksTest, WhoIsPreemptedGivesUpAllAndWhoIsAdmittedTakesIt) {
  SmallMachine machine;
  machine.Decode(Tier::kGpu, 11, 2);
  TierBooks books = machine.books();
  books.Preempt(1, PreemptionReason::kBothTiersFull);
  EXPECT_EQ(books.spare_blocks(Tier::kGpu), 98);
  EXPECT_EQ(books.num_decodes(Tier::kGpu), 1);
  EXPECT_FALSE(books.sequences()[1].decodes_in(Tier::kGpu));
  EXPECT_FALSE(books.sequences()[1].lives_in(Tier::kGpu));
  books.Admit(Tier::kGpu, 7);
  EXPECT_EQ(books.spare_blocks(Tier::kGpu), 91);
  EXPECT_EQ(books.num_sequences(Tier::kGpu), 2);
  EXPECT_EQ(books.num_decodes(Tier::kGpu), 1);
  EXPECT_THAT(books.preempted(), ElementsAre(Preemption{2, PreemptionReason::kBothTiersFull}));
}

TEST(TierBooksTest, AmidATokenNobodyLeavesUnlessItsCohortIsDropped) {
  SmallMachine machine;
  machine.Decode(Tier::kCpu, 10, 4);
  machine.PutInFlight(5, 0, {1, 2});
  machine.PutInFlight(6, 1, {3});
  TierBooks books = machine.books();
  EXPECT_FALSE(books.sequences()[0].may_leave());
  EXPECT_TRUE(books.sequences()[3].may_leave());
  books.DropCohort(7);
  EXPECT_THAT(books.dropped(), IsEmpty());
  books.DropCohort(6);
  EXPECT_TRUE(books.sequences()[2].may_leave());
  books.DropAllCohorts();
  EXPECT_TRUE(books.sequences()[1].may_leave());
  EXPECT_THAT(books.dropped(), ElementsAre(6, 5));
}

}  // namespace
}  // namespace tandem
