#include "bench/steady_start.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
  EXPECT_LE(blocks, 1400 - 50);
  EXPECT_GE(blocks, 1400 - 50 - 2 * 30 - 20);
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

}  // namespace
}  // namespace tandem
