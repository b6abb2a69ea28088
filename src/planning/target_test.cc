#include "planning/target.h"

#include <gtest/gtest.h>

#include "planning/planning_testing.h"

namespace tandem {
namespace {

using testing::SmallMachine;

// The work of OperatingPointTest: 10 decodes of 10 tokens fill the gpu tier, the cpu tier holds 50. X(0) is
// 10 / 220, the best with two sub-batches X(21) = 31 / 420, that with riding rows X(33) = 21 / 220.
class TargetTest : public ::testing::Test {
 protected:
  TargetTest() {
    machine.capacity.total = {10, 50};
    machine.tuning.next_rows = 1;
    machine.tuning.nearly_best = 1;
    machine.state.prompt_tokens_per_output = 0;
    machine.Decode(Tier::kGpu, 10, 10);
  }
  void MayRide(OverlapChoice overlap) {
    machine.aims.overlap = overlap;
    machine.state.limits.max_rider_rows = 64;
  }
  Target Find() const { return FindTarget(machine.input(), machine.books()); }

  SmallMachine machine;
};

TEST_F(TargetTest, IsWhereTheWorkTendsToWithWhatTheTiersHold) {
  machine.Wait(10, 40);
  Target target = Find();
  EXPECT_EQ(target.point.cpu_rows, 21);
  EXPECT_EQ(target.max_cpu_sequences, 42) << "the target may be passed while prompts are dealt out";
  EXPECT_DOUBLE_EQ(target.point.decoded_token_us, 420 / 31.0);
  EXPECT_FALSE(target.rides);
  EXPECT_TRUE(target.within_limit(1e9));
  machine.capacity.total = {10, 12};
  EXPECT_EQ(Find().point.cpu_rows, 12);
  machine.state.limits.max_num_seqs = 15;  // the gpu tier is full first
  EXPECT_EQ(Find().point.cpu_rows, 1);     // X(1) to X(5) are the same
}

// Contexts of 20 tokens: 5 rows fill the gpu tier. Of the cpu tier 5 + 5 hide, X = 15 / 420, one more makes
// it 16 / 440.
TEST_F(TargetTest, ContextsAreThoseToComeIfTheyAreKnown) {
  machine.Wait(10, 40);
  machine.state.mean_context = 20;
  EXPECT_EQ(Find().point.cpu_rows, 11);
}

// Decodes of the gpu tier say what those of the cpu tier will have in common: all ten of 2,000 tokens, 1,536
// of them shared by nine with one before them, of which a further reader takes none.
TEST_F(TargetTest, MoreRowsHideThatReadTogether) {
  SmallMachine alike;
  alike.capacity.total = {2000, 10'000};
  alike.tuning.next_rows = 1;
  alike.tuning.nearly_best = 1;
  alike.state.prompt_tokens_per_output = 0;
  alike.costs.linear_us = 10'000;
  alike.Decode(Tier::kGpu, 2000, 10);
  alike.Wait(2000, 30);
  const int64_t apart = FindTarget(alike.input(), alike.books()).point.cpu_rows;
  alike.costs.further_reader = 0;
  for (SequenceId id = 1; id <= 10; ++id) {
    alike.running(id).beginning = 7;
    if (id > 1) alike.capacity.shared[{id - 1, id}] = 1600;
  }
  EXPECT_GT(FindTarget(alike.input(), alike.books()).point.cpu_rows, 2 * apart);
}

TEST_F(TargetTest, AnUnusableTierIsToHoldNobody) {
  machine.Wait(10, 40);
  MayRide(OverlapChoice::kAsynchronous);
  machine.state.cpu_tier_usable = false;
  const Target target = Find();
  EXPECT_EQ(target.point.cpu_rows, 0);
  EXPECT_EQ(target.max_cpu_sequences, 0);
  EXPECT_FALSE(target.rides);
}

// 10 rows of the cohort and 10 others hide behind T_l twice.
TEST_F(TargetTest, NobodyDecodesInTheGpuTierOfThoseThatOffloadAll) {
  machine.Wait(10, 40);
  machine.aims.cut = CpuRowsCut::kLeastTime;
  EXPECT_EQ(Find().point.cpu_rows, 20);
  machine.state.cpu_tier_usable = false;
  EXPECT_DOUBLE_EQ(Find().point.rate, 10 / 220.0) << "unless there is no other tier";
}

// Two rows of the gpu tier attend for twice T_l. With the cpu tier's twelve beside them an iteration takes
// 3 T_l in each layer, X = 14 / 600; alone those take 2 T_l, X = 12 / 400.
class PaysToOffloadAllTest : public ::testing::Test {
 protected:
  PaysToOffloadAllTest() {
    machine.aims.overlap = OverlapChoice::kBetter;
    machine.capacity.total = {2, 12};
    machine.costs.gpu_kv_ns = 10'000;
    machine.tuning.next_rows = 1;
    machine.state.prompt_tokens_per_output = 0;
    machine.state.num_ended = machine.tuning.ended_to_know;
  }
  bool Pays() const { return PaysToOffloadAll(machine.input(), machine.books()); }

  SmallMachine machine;
};

TEST_F(PaysToOffloadAllTest, WhereTheGpuTiersRowsAddMoreTimeThanTokens) {
  machine.Decode(Tier::kGpu, 10, 2);
  machine.Wait(10, 40);
  EXPECT_TRUE(Pays());
  machine.state.num_ended -= 1;
  EXPECT_FALSE(Pays()) << "the short ones end first";
  machine.state.num_ended += 1;
  machine.capacity.total = {2, 6};
  EXPECT_FALSE(Pays()) << "the gpu tier's are too many to give up";
  machine.capacity.total = {2, 12};
  machine.costs.gpu_kv_ns = 100;
  EXPECT_FALSE(Pays()) << "X = 14 / 404 with both tiers";
  machine.costs.gpu_kv_ns = 10'000;
  machine.state.cpu_tier_usable = false;
  EXPECT_FALSE(Pays());
  machine.state.cpu_tier_usable = true;
  machine.state.waiting = {};
  EXPECT_FALSE(Pays()) << "nobody waits for a place";
}

TEST_F(PaysToOffloadAllTest, LessIsAskedToGoOn) {
  machine.tuning.worth_offloading_all = (12 / 400.0) / (14 / 600.0) + 0.01;
  machine.Wait(10, 40);
  EXPECT_FALSE(Pays());
  machine.Decode(Tier::kCpu, 10, 12);
  EXPECT_TRUE(Pays()) << "nobody decodes in the gpu tier";
}

TEST_F(TargetTest, TheLimitOfAnIterationIsTighterWhereAnybodyIsInAHurry) {
  machine.Wait(10, 40);
  machine.state.limits.max_iteration_us = 1000;
  machine.state.limits.max_tpot_us = 300;
  Target target = Find();
  EXPECT_EQ(target.max_iteration_us, 300);
  EXPECT_FALSE(target.within_limit(301));
  EXPECT_LE(target.point.cpu_rows, 5);
  for (ScheduledSequence& each : machine.state.running) each.flexible = true;
  target = Find();
  EXPECT_EQ(target.max_iteration_us, 1000);
  EXPECT_EQ(target.point.cpu_rows, 21);
  machine.running(1).flexible = false;
  machine.state.limits.max_iteration_us = 250;
  EXPECT_EQ(Find().max_iteration_us, 250);
}

// There are never so many that the weights are read for 31.
TEST_F(TargetTest, ATokenIsWorthMoreWhereFewRequestsCome) {
  Target target = Find();
  EXPECT_EQ(target.point.cpu_rows, 21);
  EXPECT_DOUBLE_EQ(target.point.decoded_token_us, 22);
  machine.Wait(10, 15);
  EXPECT_DOUBLE_EQ(Find().point.decoded_token_us, 420 / 25.0);
}

TEST_F(TargetTest, AsynchronousOverlapRidesWhereTheCpuIsOfUse) {
  machine.Wait(10, 40);
  MayRide(OverlapChoice::kAsynchronous);
  const Target target = Find();
  EXPECT_TRUE(target.rides);
  EXPECT_EQ(target.point.cpu_rows, 33);
  EXPECT_EQ(target.max_cpu_sequences, 42) << "a quarter more, for those that are late";
  machine.aims = {.name = "tested", .admits_for_riding = true};
  EXPECT_FALSE(Find().rides);
  EXPECT_EQ(Find().max_cpu_sequences, 42);
  MayRide(OverlapChoice::kAsynchronous);
  machine.costs.cpu_us = 1e6;
  machine.tuning.nearly_best = 0.98;
  EXPECT_FALSE(Find().rides);
}

// With n beyond the gpu tier: riding rows do (10 + n / 3) / 220, two sub-batches 11 / 220 while n <= 11. 1 %
// more is needed where the cpu tier would hold all that wait: at n = 4, not at 3.
TEST_F(TargetTest, RidingMustPromiseMore) {
  MayRide(OverlapChoice::kBetter);
  machine.Wait(10, 3);
  EXPECT_FALSE(Find().is_riding);
  machine.Wait(10);
  EXPECT_TRUE(Find().is_riding);
  EXPECT_EQ(Find().point.cpu_rows, 33);
  EXPECT_FALSE(Find().rides) << "before there are as many in the cpu tier";
  machine.Decode(Tier::kCpu, 10, 5);
  EXPECT_TRUE(Find().rides);
}

// Where many wait a promise of 3 % less is enough: riders' prompts hold none of the gpu tier's blocks.
TEST_F(TargetTest, FillingCostsWhereTheTierWouldHoldAllThatWait) {
  MayRide(OverlapChoice::kBetter);
  machine.Wait(10, 3);
  EXPECT_FALSE(Find().is_riding);
  machine.tuning.price_of_filling = 0;
  EXPECT_TRUE(Find().is_riding);
  machine.tuning.worth_riding = 1.01;
  EXPECT_FALSE(Find().is_riding);
}

TEST_F(TargetTest, NobodyRidesWhereTheCpuIsOfNoUse) {
  MayRide(OverlapChoice::kBetter);
  machine.Wait(10, 40);
  machine.tuning.nearly_best = 0.98;
  machine.costs.cpu_us = 1e6;
  EXPECT_FALSE(Find().is_riding);
}

// 2 % less than to begin are enough to go on: at n = 3 both overlaps do 11 / 220.
TEST_F(TargetTest, CohortsInFlightAreReasonToStay) {
  MayRide(OverlapChoice::kBetter);
  const SequenceId last = machine.Decode(Tier::kCpu, 10, 3);
  EXPECT_FALSE(Find().rides);
  machine.PutInFlight(0, 0, {last});
  EXPECT_TRUE(Find().rides);
  EXPECT_TRUE(Find().is_riding);
}

// No rows are enough for 0.4 of what 33 make; 3 that ride do 11 / 220, none 10 / 220.
TEST_F(TargetTest, WhoRidesGoesOnAndNobodyJoinsWhereRidingPromisesLittle) {
  MayRide(OverlapChoice::kBetter);
  machine.Wait(10, 40);
  machine.tuning.nearly_best = 0.4;
  const SequenceId last = machine.Decode(Tier::kCpu, 10, 3);
  EXPECT_FALSE(Find().is_riding) << "nobody begins";
  machine.PutInFlight(0, 0, {last - 2, last - 1, last});
  Target target = Find();
  EXPECT_TRUE(target.rides);
  EXPECT_EQ(target.point.cpu_rows, 3);
  EXPECT_EQ(target.max_cpu_sequences, 3);
  EXPECT_EQ(target.promise.strategy, "async");
  EXPECT_DOUBLE_EQ(target.promise.tokens_per_s, 11 / 220e-6);
  machine.costs.cpu_us = 1e6;
  EXPECT_FALSE(Find().is_riding) << "the CPU does not get on with them";
  machine.costs.cpu_us = 0;
  machine.aims.overlap = OverlapChoice::kAsynchronous;
  EXPECT_FALSE(Find().rides) << "of auto alone: async has no other way";
}

// A token of a row that rides takes 3 iterations of 220 us.
TEST_F(TargetTest, OnlyThoseRideThatAreNotInAHurry) {
  MayRide(OverlapChoice::kBetter);
  const SequenceId last = machine.Decode(Tier::kCpu, 10, 10);
  machine.state.limits.max_tpot_us = 660;
  EXPECT_FALSE(Find().riding_is_slow);
  EXPECT_TRUE(Find().rides);
  machine.state.limits.max_tpot_us = 659;
  EXPECT_TRUE(Find().riding_is_slow);
  EXPECT_FALSE(Find().is_riding) << "nobody may";
  for (SequenceId id = last - 9; id <= last; ++id) machine.running(id).flexible = true;
  const Target target = Find();
  EXPECT_TRUE(target.rides);
  EXPECT_TRUE(target.may_ride({.flexible = true}));
  EXPECT_FALSE(target.may_ride({.flexible = false}));
}

}  // namespace
}  // namespace tandem
