#include "planning/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/planning_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::IdsOf;
using ::testing::IsEmpty;
using testing::SmallMachine;

Room MakeRoomFor(const SmallMachine& machine, const Target& target) {
  return MakeRoom(machine.input(), target, machine.books());
}

TEST(RoomTest, DecodesByTierOldestFirst) {
  SmallMachine machine;
  machine.Decode(Tier::kCpu, 20);
  machine.Decode(Tier::kGpu, 30);
  machine.Decode(Tier::kGpu, 40);
  machine.Decode(Tier::kCpu, 50, 2);
  machine.Begin(Tier::kCpu, 60, 10);
  machine.PutInFlight(0, 1, {4});
  machine.Wait(10);
  Room room = MakeRoomFor(machine, {.max_cpu_sequences = 20});
  EXPECT_THAT(room.gpu_rows,
              ElementsAre(RowSpan::Decode(2, 29, Tier::kGpu), RowSpan::Decode(3, 39, Tier::kGpu)));
  EXPECT_EQ(room.gpu_load.gpu_decode_rows, 2);
  EXPECT_EQ(room.gpu_load.gpu_kv_tokens, 70);
  EXPECT_EQ(room.gpu_load.num_sampled, 2);
  EXPECT_EQ(room.rows_left, 198);
  EXPECT_THAT(IdsOf(room.cpu_rows.rows()), ElementsAre(1, 5));
  EXPECT_THAT(IdsOf(room.free_cpu_rows.rows()), ElementsAre(1, 5));
  EXPECT_EQ(room.riders.num_rows(), 1);
  machine.state.limits.max_num_batched_tokens = 1;
  room = MakeRoomFor(machine, {.max_cpu_sequences = 20});
  EXPECT_THAT(IdsOf(room.gpu_rows), ElementsAre(2));
  EXPECT_EQ(room.rows_left, 0);
}

TEST(RoomTest, WhoWasSwappedOutDecodesThere) {
  SmallMachine machine;
  machine.capacity.total = {2, 10};
  machine.Decode(Tier::kGpu, 11);
  machine.Decode(Tier::kGpu, 10);
  const Room room = MakeRoomFor(machine, {});
  EXPECT_THAT(room.books.moves(), ElementsAre(Move{2, Tier::kCpu}));
  EXPECT_THAT(IdsOf(room.gpu_rows), ElementsAre(1));
  EXPECT_THAT(IdsOf(room.cpu_rows.rows()), ElementsAre(2));
}

TEST(RoomTest, WaitingPromptsComeBeforeThoseThatTheCpuServesWell) {
  SmallMachine machine;
  machine.Decode(Tier::kCpu, 10, 5);
  const Target target = {.max_cpu_sequences = 4};
  EXPECT_EQ(MakeRoomFor(machine, target).books.moves().size(), 5U);
  machine.Wait(10);
  EXPECT_THAT(MakeRoomFor(machine, target).books.moves(), IsEmpty()) << "a quarter more is no overload";
  machine.state.limits.max_num_seqs = 5;
  EXPECT_EQ(MakeRoomFor(machine, target).books.moves().size(), 5U) << "nobody can enter";
}

TEST(RoomTest, AnOverloadComesBackDownToWhatTheCpuTierMayHold) {
  SmallMachine machine;
  const SequenceId last = machine.Decode(Tier::kCpu, 10, 6);
  machine.Wait(10);
  const Target target = {.max_cpu_sequences = 4};
  Room room = MakeRoomFor(machine, target);
  EXPECT_THAT(room.books.moves(), ElementsAre(Move{1, Tier::kGpu}, Move{2, Tier::kGpu}));
  EXPECT_FALSE(room.cpu_tier_overloaded);
  machine.capacity.total = {0, 100};
  room = MakeRoomFor(machine, target);
  EXPECT_TRUE(room.cpu_tier_overloaded);
  EXPECT_FALSE(room.overload_can_leave);
  // There is no room now, but there may be; not for those that are amid a token.
  machine.capacity.total = {5, 100};
  machine.Begin(Tier::kGpu, 50, 10);
  room = MakeRoomFor(machine, target);
  EXPECT_THAT(room.books.moves(), IsEmpty());
  EXPECT_TRUE(room.cpu_tier_overloaded);
  EXPECT_TRUE(room.overload_can_leave);
  machine.PutInFlight(0, 0, {1, 2, 3, 4, 5, last});
  EXPECT_FALSE(MakeRoomFor(machine, target).overload_can_leave);
}

TEST(RoomTest, RowsThatMayRideDoNotRunOtherwise) {
  SmallMachine machine;
  machine.state.limits.max_rider_rows = 64;
  machine.Decode(Tier::kCpu, 10, 24);
  machine.Wait(10);
  Target target = {.rides = true, .max_cpu_sequences = 100};
  Room room = MakeRoomFor(machine, target);
  EXPECT_TRUE(room.cpu_rows.empty());
  EXPECT_EQ(room.free_cpu_rows.size(), 24);
  // Two cohorts of 12: the first enters.
  EXPECT_EQ(room.riders.entering().size(), 12U);
  target.riding_is_slow = true;
  for (const SequenceId id : {3, 5, 8}) machine.running(id).flexible = true;
  room = MakeRoomFor(machine, target);
  EXPECT_EQ(room.cpu_rows.size(), 21);
  EXPECT_THAT(IdsOf(room.riders.entering()), ElementsAre(3, 5, 8));
}

// Two cohorts of 12: the first enters. 1 and 2 do not say how they begin.
TEST(RoomTest, WhoRidesTogetherBeginsAlike) {
  SmallMachine machine;
  machine.state.limits.max_rider_rows = 64;
  machine.Decode(Tier::kCpu, 10, 24);
  machine.Wait(10);
  const Target target = {.rides = true, .max_cpu_sequences = 100};
  const std::vector<SequenceId> oldest = IdsOf(MakeRoomFor(machine, target).riders.entering());
  ASSERT_GE(oldest.size(), 5U);
  EXPECT_THAT(std::vector<SequenceId>(oldest.begin(), oldest.begin() + 5), ElementsAre(1, 2, 3, 4, 5));
  for (const SequenceId id : {3, 20, 23}) machine.running(id).beginning = 77;
  for (const SequenceId id : {4, 22}) machine.running(id).beginning = 78;
  const std::vector<SequenceId> alike = IdsOf(MakeRoomFor(machine, target).riders.entering());
  EXPECT_EQ(alike.size(), oldest.size());
  EXPECT_THAT(std::vector<SequenceId>(alike.begin(), alike.begin() + 7), ElementsAre(1, 2, 3, 20, 23, 4, 22));
}

TEST(RoomTest, RowsSayWhatTheyShare) {
  SmallMachine machine;
  machine.capacity.total = {1000, 1000};
  machine.Decode(Tier::kCpu, 1600, 3);
  machine.Decode(Tier::kGpu, 1600, 2);
  for (const SequenceId id : {1, 3, 4, 5}) machine.running(id).beginning = 77;
  machine.capacity.shared = {{{1, 3}, 600}, {{4, 5}, 600}};
  machine.Wait(10);
  const Room room = MakeRoomFor(machine, {.max_cpu_sequences = 20});
  const std::vector<RowSpan>& rows = room.cpu_rows.rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].beginning, 77U);
  EXPECT_EQ(rows[0].num_shared, 0);
  EXPECT_EQ(rows[1].beginning, 0U);
  EXPECT_EQ(rows[2].beginning, 77U);
  EXPECT_EQ(rows[2].num_shared, 512);
  for (const RowSpan& row : room.gpu_rows) EXPECT_EQ(row.beginning, 0U);
}

TEST(RoomTest, AnUnusableCpuTierIsLeftByAll) {
  SmallMachine machine;
  machine.Decode(Tier::kCpu, 10, 3);
  machine.PutInFlight(6, 0, {1});
  machine.Wait(10);
  machine.state.cpu_tier_usable = false;
  machine.capacity.total = {2 + 7 + 1, 100};  // ample for two
  const Room room = MakeRoomFor(machine, {});
  EXPECT_THAT(room.books.dropped(), ElementsAre(6));
  EXPECT_THAT(IdsOf(room.gpu_rows), ElementsAre(1, 2));
  EXPECT_TRUE(room.free_cpu_rows.empty());
  EXPECT_TRUE(room.riders.empty());
}

TEST(RoomTest, ThoseThatOffloadAllSwapOutEveryDecode) {
  SmallMachine machine;
  machine.aims.cut = CpuRowsCut::kHalves;
  machine.Decode(Tier::kGpu, 10, 2);
  machine.Decode(Tier::kGpu, 90);
  machine.Decode(Tier::kCpu, 10);
  machine.Begin(Tier::kGpu, 20, 10);
  machine.PutInFlight(0, 1, {4});
  machine.capacity.total = {100, 9};
  const Room room = MakeRoomFor(machine, {});
  EXPECT_THAT(room.books.moves(), ElementsAre(Move{1, Tier::kCpu}, Move{2, Tier::kCpu}));
  EXPECT_THAT(IdsOf(room.gpu_rows), ElementsAre(3)) << "for which the cpu tier has no room";
  EXPECT_THAT(IdsOf(room.cpu_rows.rows()), ElementsAre(1, 2, 4));
  EXPECT_THAT(room.books.dropped(), ElementsAre(0));
  EXPECT_FALSE(room.cpu_tier_overloaded);
}

}  // namespace
}  // namespace tandem
