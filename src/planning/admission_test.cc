#include "planning/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "plan/plan_testing.h"
#include "planning/planning_testing.h"

namespace tandem {
namespace {

using testing::Chunk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::SmallMachine;
using testing::Stages;

constexpr Target kOfFour = {.point = {.cpu_rows = 4, .prefilled_token_us = 2, .decoded_token_us = 10},
                            .max_cpu_sequences = 8};

std::vector<RowSpan> Admitted(const SmallMachine& machine, const Target& target = kOfFour) {
  const PrefillQueue prompts = Stages(machine, target).admission.prompts;
  return testing::ChunksOf(prompts, prompts.num_tokens());
}

TEST(AdmissionTest, TheCpuTierIsFilledUpToTheTarget) {
  SmallMachine machine;
  machine.capacity.total = {2, 100};
  machine.Decode(Tier::kGpu, 20);
  machine.Decode(Tier::kCpu, 10, 6);
  machine.Wait(20, 4);
  EXPECT_THAT(Admitted(machine),
              ElementsAre(Chunk(8, 0, 20, true, Tier::kCpu), Chunk(9, 0, 20, true, Tier::kCpu)));
}

// An overloading decode needs five blocks and five to spare, a prompt one of the nine that are free.
TEST(AdmissionTest, RoomInTheGpuTierGoesToThoseThatOverloadTheCpuTier) {
  SmallMachine machine;
  machine.capacity.total = {10, 100};
  machine.Decode(Tier::kGpu, 10);
  machine.Decode(Tier::kCpu, 50, 6);
  machine.Wait(10);
  Target target = kOfFour;
  target.max_cpu_sequences = 4;
  EXPECT_THAT(Admitted(machine, target), IsEmpty());
  machine.PutInFlight(0, 0, {2, 3, 4, 5, 6, 7});
  EXPECT_THAT(Admitted(machine, target), ElementsAre(Chunk(8, 0, 10, true))) << "none of them can leave";
}

TEST(AdmissionTest, CpuDecodesKeepSomeRowsOfTheIteration) {
  SmallMachine machine;
  machine.state.limits.max_num_batched_tokens = 22;
  machine.Decode(Tier::kGpu, 10, 2);
  machine.Decode(Tier::kCpu, 10, 8);
  machine.Wait(100);
  EXPECT_THAT(Admitted(machine), ElementsAre(Chunk(11, 0, 12, false)));
  machine.Decode(Tier::kCpu, 10, 7);
  Target target = kOfFour;
  target.max_cpu_sequences = 20;
  EXPECT_THAT(Admitted(machine, target), ElementsAre(Chunk(11, 0, 10, false))) << "half of 20 at most";
}

// A tier of 50 blocks, of which a decode holds one, and an output takes 20.
TEST(AdmissionTest, RoomToGrowIsPricedWhereWhoIsPushedOutIsComputedAgain) {
  SmallMachine machine;
  machine.capacity.total = {50, 400};
  machine.state.mean_output_tokens = 200;
  machine.state.prompt_tokens_per_output = 1;
  machine.Decode(Tier::kGpu, 10);
  const auto admits = [&](int64_t num_tokens, double decoded_token_us) {
    machine.state.waiting = {{.id = 9, .num_tokens = num_tokens}};
    Target target = kOfFour;
    target.max_cpu_sequences = 0;
    target.point.decoded_token_us = decoded_token_us;
    return !Admitted(machine, target).empty();
  };
  EXPECT_TRUE(admits(430, 1e6)) << "an eighth";
  EXPECT_FALSE(admits(440, 1e6));
  machine.capacity.total[1] = 0;
  EXPECT_TRUE(admits(480, 1e6)) << "a decoded token is worth far more than one computed again";
  EXPECT_FALSE(admits(300, 0)) << "and here nothing: room for an output";
  EXPECT_TRUE(admits(290, 0));
  machine.capacity.total[1] = 400;
  machine.state.cpu_tier_usable = false;
  EXPECT_TRUE(admits(480, 1e6));
}

TEST(AdmissionTest, WhoOffloadsAllKeepsAllRowsAndFillsTheCpuTier) {
  SmallMachine machine;
  machine.aims.cut = CpuRowsCut::kOneBatch;
  machine.state.limits.max_num_batched_tokens = 20;
  machine.Decode(Tier::kCpu, 10, 15);
  machine.Wait(100);
  EXPECT_THAT(Admitted(machine), ElementsAre(Chunk(16, 0, 5, false, Tier::kCpu)));
}

// Of nine decodes five are too many: 0, not 1 of the target's four and one is left.
TEST(AdmissionTest, PromptTokensAreWorthLessBeyondTheTargetAndDecodedOnesMore) {
  SmallMachine machine;
  machine.capacity.total = {1, 200};
  machine.state.prompt_tokens_per_output = 3;
  machine.Wait(2000);
  const auto worth = [&](int64_t num_decodes) {
    SmallMachine with = machine;
    with.Decode(Tier::kCpu, 10, num_decodes);
    const Admission admission = Stages(with, kOfFour).admission;
    EXPECT_DOUBLE_EQ(admission.decoded_token_us + 3 * admission.prefilled_token_us, 10 + 3 * 2);
    return admission.prefilled_token_us;
  };
  EXPECT_DOUBLE_EQ(worth(0), 2);
  EXPECT_DOUBLE_EQ(worth(4), 2);
  EXPECT_DOUBLE_EQ(worth(6), 2 * 0.6);
  EXPECT_DOUBLE_EQ(worth(9), 2 * 0.25) << "a quarter at least";
}

TEST(AdmissionTest, AsMuchPrefillIsWantedAsTheDecodesUseUpAndTheTiersLack) {
  SmallMachine machine;
  machine.capacity.total = {20, 100};
  machine.state.prompt_tokens_per_output = 2;
  machine.Decode(Tier::kGpu, 10, 20);
  const auto wanted = [&](const Target& target) {
    return Stages(machine, target).admission.wanted_prefill_tokens;
  };
  Target target = kOfFour;
  target.point.cpu_rows = 0;
  EXPECT_DOUBLE_EQ(wanted(target), 2 * 20);
  // Four prompts of 64 tokens for the cpu tier, over 128 iterations, or 2048.
  machine.Wait(64);
  EXPECT_DOUBLE_EQ(wanted(kOfFour), 2 * 20 + 2);
  machine.state.limits.max_rider_rows = 64;
  target = kOfFour;
  target.rides = true;
  EXPECT_DOUBLE_EQ(wanted(target), 2 * 20 + 0.125);
  // At most half of what decodes use up, or 32 tokens.
  target = kOfFour;
  target.point.cpu_rows = 100;
  EXPECT_DOUBLE_EQ(wanted(target), 2 * 20 + 32);
  // A prompt of 40 tokens for the gpu tier, which holds 25 of them: over 10 * 5 iterations.
  machine.state.waiting = {{.id = 90, .num_tokens = 40}};
  machine.capacity.total = {100, 100};
  machine.Decode(Tier::kGpu, 600);
  target.point.cpu_rows = 0;
  EXPECT_DOUBLE_EQ(wanted(target), 2 * 21 + 40 / 50.0);
  machine.state.prompt_tokens_per_output = 16;  // prompts keep the GPU busy
  EXPECT_DOUBLE_EQ(wanted(target), 16 * 21 + 40 / 10.0);
}

TEST(AdmissionTest, WithRoomForMorePromptsAreNotDealtOut) {
  SmallMachine machine;
  machine.state.prompt_tokens_per_output = 2;
  machine.Decode(Tier::kGpu, 10, 10);
  machine.Wait(100);
  Target target = kOfFour;
  target.point.cpu_rows = 0;
  const auto wanted = [&](int64_t gpu_blocks) {
    machine.capacity.total = {gpu_blocks, 100};
    return Stages(machine, target).admission.wanted_prefill_tokens;
  };
  // 20 blocks are taken.
  EXPECT_DOUBLE_EQ(wanted(27), 100);
  EXPECT_LT(wanted(26), 30);
  // What the CPU does hides behind prompts that are dealt out.
  machine.Decode(Tier::kCpu, 10);
  EXPECT_LT(wanted(27), 30);
}

TEST(AdmissionTest, WithoutDecodesAllIsWantedAtOnce) {
  SmallMachine machine;
  machine.Wait(30, 4);
  EXPECT_DOUBLE_EQ(Stages(machine, kOfFour).admission.wanted_prefill_tokens, 120);
}

// A row that rides makes one visit of three.
TEST(AdmissionTest, RidersUseUpTheirShareOfTheirTokensPrompts) {
  SmallMachine machine;
  machine.capacity.total = {0, 100};
  machine.Decode(Tier::kCpu, 10, 6);
  machine.PutInFlight(0, 0, {1, 2, 3, 4, 5, 6});
  Target target = kOfFour;
  target.point.cpu_rows = 6;
  EXPECT_DOUBLE_EQ(Stages(machine, target).admission.wanted_prefill_tokens, 2);
}

}  // namespace
}  // namespace tandem
