#include "bench/steady_start.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/sanitizers.h"
#include "perf/analytic_costs.h"

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
    TierRoom room = {.block_size = kBlock,
                     .gpu_blocks = 26400 / kBlock,
                     .cpu_blocks = 800'000 / kBlock,
                     .max_num_seqs = 600,
                     .max_cpu_requests = max_cpu_requests};
    const SteadyPlay play = {.strategy = strategy,
                             .limits = {.max_num_seqs = room.max_num_seqs,
                                        .max_num_batched_tokens = 2048,
                                        .reserve_blocks = 8,
                                        .num_layers = costs_.layers,
                                        .max_transit_tokens = 16384,
                                        .max_cohort_rows = 512,
                                        .max_rider_rows = 512},
                             .costs = &costs_,
                             .seconds = seconds};
    EXPECT_GT(BeginAmidWork(room, requests), max_cpu_requests);
    auto steady = PlayIntoSteadyState(room, play, requests);
    EXPECT_TRUE(steady.ok()) << steady.error().message;
    return steady.ok() ? *steady : SteadyRequests{};
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

TEST_F(PlayedStart, HalfOfTheRequestsAreLeftForTheRun) {
  std::vector<WorkloadRequest> requests = Numbered(100);
  const SteadyRequests steady = PlayFrom("gpu-only", 0, 1e4, &requests);
  EXPECT_LT(steady.played_s, 100);
  EXPECT_GE(requests.size() - static_cast<size_t>(steady.num_begun), 35U);
}

TEST_F(PlayedStart, AnUnknownStrategyIsAnError) {
  std::vector<WorkloadRequest> requests = Numbered(10);
  EXPECT_FALSE(PlayIntoSteadyState({}, {.strategy = "no such strategy"}, &requests).ok());
  EXPECT_EQ(requests.size(), 10U);
}

}  // namespace
}  // namespace tandem
