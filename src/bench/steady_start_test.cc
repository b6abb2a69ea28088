#include "bench/steady_start.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/sanitizers.h"
#include "bench/workload.h"
#include "perf/analytic_costs.h"
#include "perf/corrected_costs.h"
#include "perf/profile_file.h"
#include "perf/time_model.h"
#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

std::vector<WorkloadRequest> Requests(size_t count, int64_t prompt_tokens, int64_t output_tokens) {
  return std::vector<WorkloadRequest>(count,
                                      {.prompt_tokens = prompt_tokens, .output_tokens = output_tokens});
}

TEST(SteadyStart, SharesOfTheOutputAreSpreadEvenly) {
  std::vector<WorkloadRequest> requests = Requests(200, 100, 1000);
  EXPECT_EQ(BeginAmidWork({.block_size = 16, .gpu_blocks = 1 << 20, .max_num_seqs = 500}, &requests), 200);
  std::vector<int64_t> made;
  for (const WorkloadRequest& request : requests) {
    EXPECT_TRUE(request.begun);
    made.push_back(request.made_tokens);
  }
  // Also the first of them are spread: they go to the gpu tier.
  for (const int64_t count : {200, 20}) {
    std::vector<int64_t> first(made.begin(), made.begin() + count);
    std::sort(first.begin(), first.end());
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_NEAR(static_cast<double>(first[static_cast<size_t>(i)]),
                  (static_cast<double>(i) + 0.5) * 1000 / static_cast<double>(count),
                  2000.0 / static_cast<double>(count));
    }
  }
  std::vector<WorkloadRequest> again = Requests(200, 100, 1000);
  BeginAmidWork({.block_size = 16, .gpu_blocks = 1 << 20, .max_num_seqs = 500}, &again);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].made_tokens, made[i]);
}

TEST(SteadyStart, TheFirstRequestsFillBothTiers) {
  std::vector<WorkloadRequest> requests = Requests(300, 160, 320);
  const TierRoom room = {
      .block_size = 16, .gpu_blocks = 400, .cpu_blocks = 1000, .max_num_seqs = 500, .max_cpu_requests = 500};
  const int64_t num_begun = BeginAmidWork(room, &requests);
  int64_t blocks = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const WorkloadRequest& request = requests[static_cast<size_t>(i)];
    EXPECT_EQ(request.begun, i < num_begun);
    if (!request.begun) {
      EXPECT_EQ(request.made_tokens, 0);
      continue;
    }
    EXPECT_LT(request.made_tokens, request.output_tokens);
    blocks += (request.prompt_tokens + request.made_tokens + 15) / 16;
  }
  EXPECT_LE(blocks, 1400 - 14);
  EXPECT_GE(blocks, 1400 - 14 - 2 * 30 - 20);
}

TEST(SteadyStart, TheCpuTierBeginsWithNoMoreThanTheStrategyKeepsThere) {
  std::vector<WorkloadRequest> requests = Requests(300, 160, 320);
  TierRoom room = {.block_size = 16, .gpu_blocks = 400, .cpu_blocks = 1000, .max_num_seqs = 500};
  const int64_t num_in_gpu_tier = BeginAmidWork(room, &requests);
  EXPECT_GT(num_in_gpu_tier, 0);
  room.max_cpu_requests = 5;
  requests = Requests(300, 160, 320);
  EXPECT_EQ(BeginAmidWork(room, &requests), num_in_gpu_tier + 5);
}

TEST(SteadyStart, NoMoreThanMayRunOrThanThereAre) {
  std::vector<WorkloadRequest> requests = Requests(30, 10, 1);
  EXPECT_EQ(BeginAmidWork({.block_size = 16, .gpu_blocks = 1000, .max_num_seqs = 7}, &requests), 7);
  EXPECT_EQ(requests[0].made_tokens, 0) << "the only token is to come";
  requests = Requests(3, 10, 5);
  EXPECT_EQ(BeginAmidWork({.block_size = 16, .gpu_blocks = 1000, .max_num_seqs = 7}, &requests), 3);
  requests = Requests(3, 1000, 5);
  EXPECT_EQ(BeginAmidWork({.block_size = 16, .gpu_blocks = 20, .max_num_seqs = 7}, &requests), 0);
}

ScheduleLimits LimitsIn(const TierRoom& room, const LayerCosts& costs) {
  return {.max_num_seqs = room.max_num_seqs,
          .max_num_batched_tokens = 2048,
          .reserve_blocks = 8,
          .num_layers = costs.num_layers(),
          .max_transit_tokens = 16384,
          .max_cohort_rows = 512,
          .max_rider_rows = 512};
}

// Where the cpu tier begins with as many as it may.
SteadyRequests PlayIn(const TierRoom& room, const std::string& strategy, const LayerCosts& costs,
                      double seconds, std::vector<WorkloadRequest>* requests) {
  const SteadyPlay play = {
      .strategy = strategy, .limits = LimitsIn(room, costs), .costs = &costs, .seconds = seconds};
  EXPECT_GT(BeginAmidWork(room, requests), room.max_cpu_requests);
  auto steady = PlayIntoSteadyState(room, play, requests);
  EXPECT_TRUE(steady.ok()) << steady.error().message;
  return steady.ok() ? *steady : SteadyRequests{};
}

// Decodes there after so many predicted seconds of a run that begins with these requests.
int64_t InCpuTierAfter(double seconds, TierRoom room, const std::string& strategy, const LayerCosts& costs,
                       const std::vector<WorkloadRequest>& requests) {
  room.max_cpu_requests = room.max_num_seqs;
  ScheduleSimulation simulation(SimulatedBooks(room.block_size, room.gpu_blocks, room.cpu_blocks),
                                LimitsIn(room, costs), &costs);
  const std::vector<std::optional<Tier>> places = PlacesOf(room, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const WorkloadRequest& each = requests[i];
    const auto id = static_cast<SequenceId>(i + 1);
    const int64_t num_tokens = each.prompt_tokens + each.made_tokens;
    if (!places[i]) {
      simulation.Submit(id, each.prompt_tokens, each.output_tokens);
    } else {
      EXPECT_TRUE(simulation.AddRunning(id, *places[i], num_tokens, num_tokens - 1,
                                        each.prompt_tokens + each.output_tokens, each.prompt_tokens));
    }
  }
  const std::unique_ptr<Strategy> planner = CreateStrategy(strategy, &costs).value();
  while (simulation.counts().us < 1e6 * seconds) {
    const Status applied = simulation.Step(planner.get());
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    if (!applied.ok()) return -1;
  }
  return std::ranges::count_if(simulation.state().running, [&](const ScheduledSequence& each) {
    return each.decoding() && simulation.books().tier_of(each.id) == Tier::kCpu;
  });
}

// Llama-3.1-8B in a slice, 26,400 tokens in the gpu tier; a request's index is its prompt's last digits.
class PlayedStart : public ::testing::Test {
 protected:
  static constexpr int64_t kBlock = 32;
  static constexpr int64_t kOutput = 400;

  static std::vector<WorkloadRequest> Numbered(int64_t count) {
    std::vector<WorkloadRequest> requests;
    for (int64_t i = 0; i < count; ++i)
      requests.push_back({.prompt_tokens = 1000 + i % 100, .output_tokens = kOutput});
    return requests;
  }

  SteadyRequests PlayFrom(const std::string& strategy, int64_t max_cpu_requests, double seconds,
                          std::vector<WorkloadRequest>* requests) {
    const TierRoom room = {.block_size = kBlock,
                           .gpu_blocks = 26400 / kBlock,
                           .cpu_blocks = 800'000 / kBlock,
                           .max_num_seqs = 600,
                           .max_cpu_requests = max_cpu_requests};
    return PlayIn(room, strategy, costs_, seconds, requests);
  }

  const AnalyticCosts costs_ = SmallSliceCosts(30, 120);
};

TEST_F(PlayedStart, RequestsThatEndedAreGoneAndThoseThatRunComeFirst) {
  std::vector<WorkloadRequest> requests = Numbered(600);
  const SteadyRequests steady = PlayFrom("gpu-only", 0, kSanitized ? 10 : 40, &requests);
  EXPECT_EQ(steady.num_in_cpu_tier, 0);
  EXPECT_GE(steady.num_begun, 15);
  EXPECT_LE(steady.num_begun, 22);
  EXPECT_LT(requests.size(), 600U) << "some have ended";
  EXPECT_GT(requests.size(), 300U);
  int64_t tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].begun, static_cast<int64_t>(i) < steady.num_begun);
    if (!requests[i].begun) {
      EXPECT_EQ(requests[i].made_tokens, 0);
      continue;
    }
    EXPECT_GE(requests[i].made_tokens, 1);
    EXPECT_LT(requests[i].made_tokens, kOutput);
    tokens += requests[i].prompt_tokens + requests[i].made_tokens;
  }
  EXPECT_LE(tokens, 26400);
  EXPECT_GE(tokens, 20000);
}

// However many the cpu tier begins with, in time it holds what the strategy keeps there.
TEST_F(PlayedStart, TheCpuTierGetsToWhatTheStrategyKeepsThere) {
  if (kSanitized) GTEST_SKIP() << "minutes of work are played";
  std::vector<WorkloadRequest> requests = Numbered(4000);
  const int64_t from_few = PlayFrom("async", 250, 200, &requests).num_in_cpu_tier;
  requests = Numbered(4000);
  const int64_t from_many = PlayFrom("async", 450, 200, &requests).num_in_cpu_tier;
  EXPECT_GT(from_few, 350) << "it has been filled";
  EXPECT_NEAR(static_cast<double>(from_few), static_cast<double>(from_many),
              0.15 * static_cast<double>(from_many));
}

TEST_F(PlayedStart, ACpuTierThatFillsSlowlyIsGivenTheTime) {
  if (kSanitized) GTEST_SKIP() << "minutes of work are played";
  std::vector<WorkloadRequest> requests = Numbered(4000);
  const SteadyRequests steady = PlayFrom("async", 250, 1, &requests);
  EXPECT_GT(steady.played_s, 30);
  EXPECT_GT(steady.num_in_cpu_tier, 350) << "it has been filled";
}

// Nothing is learned in the play: what an engine hopes of iterations that it has not seen, and gives up
// within some tens of them, would empty the tier there for good, where both ways promise nearly the same.
TEST(SteadyStart, RidingThatPaysALittleGoesOnWithWhatWasLearned) {
  if (kSanitized) GTEST_SKIP() << "minutes of work are played";
  const auto profile =
      ReadStoredProfile(TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  CorrectedCosts learned(&profile->costs);
  // Some seconds of riding, noisy, on a host that reads two fifths of what the costs say: riding pays a
  // little.
  IterationLoad riders{
      .gpu_decode_rows = 20, .gpu_kv_tokens = 24'000, .rider_rows = 200, .rider_kv_tokens = 8'000};
  riders.rider_cpu_us = profile->costs.CpuAttentionUs(7, 8'000);
  const double cpu_us = 2.5 * TimeModel(profile->costs).CpuWorkUs(riders);
  for (int i = 0; i < 100; ++i) {
    riders.rider_cpu_us = learned.CpuAttentionUs(7, 8'000);
    const double noise = i / 20 % 2 == 0 ? 1.05 : 0.95;
    learned.Observe(riders, true, 1.03 * noise * learned.PredictUs(riders, IterationMode::kGraphWithRiders),
                    cpu_us);
  }
  EXPECT_NEAR(learned.cpu_factor(), 2.5, 0.1);
  const TierRoom room{.block_size = 32,
                      .gpu_blocks = 26'400 / 32,
                      .cpu_blocks = 450'000 / 32,
                      .max_num_seqs = 512,
                      .max_cpu_requests = 300};
  std::vector<WorkloadRequest> requests = LoadWorkload("synthetic:in=1000,out=200", 2000, 0)->requests;
  EXPECT_GT(PlayIn(room, "async", learned, 120, &requests).num_in_cpu_tier, 80);
}

// Riding that takes some percent longer than believed goes on for less than it begins for: of what a play has
// kept by that an engine, in which nobody is amid a token yet, would give up most at once (62 %, all, all).
TEST(SteadyStart, WhatItBeginsWithLasts) {
  if (kSanitized) GTEST_SKIP() << "minutes of work are played";
  const auto profile =
      ReadStoredProfile(TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const TierRoom room{.block_size = 32,
                      .gpu_blocks = 26'400 / 32,
                      .cpu_blocks = 450'000 / 32,
                      .max_num_seqs = 512,
                      .max_cpu_requests = 300};
  IterationLoad riders{
      .gpu_decode_rows = 20, .gpu_kv_tokens = 24'000, .rider_rows = 200, .rider_kv_tokens = 8'000};
  riders.rider_cpu_us = profile->costs.CpuAttentionUs(7, 8'000);
  const IterationLoad decodes{.gpu_decode_rows = 20, .gpu_kv_tokens = 24'000};
  const TimeModel time(profile->costs);
  for (const double longer : {1.0, 1.075, 1.09, 1.105}) {
    CorrectedCosts learned(&profile->costs);
    for (int i = 0; i < 1'000; ++i) {
      learned.Observe(riders, true, longer * time.IterationUs(riders), time.CpuWorkUs(riders));
      learned.Observe(decodes, true, time.IterationUs(decodes), 0);
    }
    std::vector<WorkloadRequest> requests = LoadWorkload("azure-conv", 2000, 0)->requests;
    const int64_t begun = PlayIn(room, "auto", learned, 120, &requests).num_in_cpu_tier;
    EXPECT_TRUE(longer > 1 || begun > 100) << begun;
    EXPECT_GE(InCpuTierAfter(12, room, "auto", learned, requests), begun / 2) << longer << ", " << begun;
  }
}

TEST_F(PlayedStart, AThirdOfTheRequestsIsLeftForTheRun) {
  std::vector<WorkloadRequest> requests = Numbered(100);
  const SteadyRequests steady = PlayFrom("gpu-only", 0, 1e4, &requests);
  EXPECT_LT(steady.played_s, 100);
  EXPECT_GE(requests.size() - static_cast<size_t>(steady.num_begun), 33U);
}

// Else windows of a trace whose lengths change from hour to hour would say which hour each strategy met.
TEST_F(PlayedStart, TheSameRequestsEnterTheRunWhateverWasPlayed) {
  constexpr int64_t kCount = 900;
  for (const auto& [strategy, in_cpu_tier, seconds] :
       {std::tuple("gpu-only", 0, 10.0), std::tuple("gpu-only", 0, 30.0), std::tuple("async", 100, 10.0)}) {
    std::vector<WorkloadRequest> requests = Numbered(kCount);
    const SteadyRequests steady = PlayFrom(strategy, in_cpu_tier, seconds, &requests);
    ASSERT_GT(requests.size() - static_cast<size_t>(steady.num_begun), 300U);
    for (int64_t i = 0; i < 300; ++i) {
      EXPECT_EQ(requests[static_cast<size_t>(steady.num_begun + i)].prompt_tokens,
                1000 + (kCount * 2 / 3 + i) % 100)
          << strategy << ", " << seconds << " s, " << i;
    }
  }
}

// Prompts that get longer and longer: a longer play does not find longer ones.
TEST_F(PlayedStart, WhatIsAmidItsOutputIsOfAllThatIsPlayed) {
  if (kSanitized) GTEST_SKIP() << "minutes of work are played";
  std::vector<WorkloadRequest> work;
  for (int64_t i = 0; i < 1500; ++i) work.push_back({.prompt_tokens = 200 + i, .output_tokens = kOutput});
  for (const double seconds : {20.0, 120.0}) {
    std::vector<WorkloadRequest> requests = work;
    const SteadyRequests steady = PlayFrom("gpu-only", 0, seconds, &requests);
    ASSERT_GT(steady.num_begun, 20);
    double sum = 0;
    for (int64_t i = 0; i < steady.num_begun; ++i)
      sum += static_cast<double>(requests[static_cast<size_t>(i)].prompt_tokens);
    // Of 200 to 1,200, uniform: a standard error of 60.
    EXPECT_NEAR(sum / static_cast<double>(steady.num_begun), 700, 180) << seconds << " s";
  }
}

TEST_F(PlayedStart, AnUnknownStrategyIsAnError) {
  std::vector<WorkloadRequest> requests = Numbered(10);
  EXPECT_FALSE(PlayIntoSteadyState({}, {.strategy = "no such strategy"}, &requests).ok());
  EXPECT_EQ(requests.size(), 10U);
}

}  // namespace
}  // namespace tandem
