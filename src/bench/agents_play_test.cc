// Agents whose KV is more than the gpu tier holds, by predicted times.
#include <gtest/gtest.h>

#include "bench/agents_play_testing.h"
#include "perf/analytic_costs.h"

namespace tandem {
namespace {

// Seven sessions fill the gpu tier once; gpu-only sustains about nine a minute then.
constexpr int64_t kGpuTokens = 26'400;
constexpr double kSessionsPerSecond = 0.09;

AgentsPlayed Play(std::string_view strategy, int64_t cpu_tokens, double pause_s) {
  AnalyticCosts costs = SmallSliceCosts(30, 110);
  costs.further_reader = 0.15;
  return PlayAgents(strategy, {.costs = &costs, .gpu_tokens = kGpuTokens, .cpu_tokens = cpu_tokens},
                    {.num_sessions = 60, .sessions_per_s = kSessionsPerSecond, .pause_s = pause_s});
}

TEST(AgentsPlayTest, ThreeTimesTheGpuTierTakesHardlyLongerAndNothingIsComputedTwice) {
  const AgentsPlayed once = Play("auto", 600'000, 4.7);
  const AgentsPlayed three_times = Play("auto", 600'000, 19.5);
  EXPECT_GT(once.mean_kv_tokens, 0.7 * kGpuTokens);
  EXPECT_GT(three_times.mean_kv_tokens, 2.3 * kGpuTokens);
  for (const AgentsPlayed& played : {once, three_times}) {
    EXPECT_EQ(played.computed_twice, 0);
    EXPECT_EQ(played.num_preemptions, 0);
    EXPECT_GT(played.possible_hits, played.prompt_tokens * 8 / 10);
  }
  EXPECT_LT(three_times.turn_p99_s, 1.5 * once.turn_p99_s);
  const AgentsPlayed gpu_only = Play("gpu-only", 0, 19.5);
  EXPECT_GT(gpu_only.computed_twice, gpu_only.possible_hits / 10) << "what has been given up";
  EXPECT_LT(three_times.turn_p99_s, 0.5 * gpu_only.turn_p99_s);
}

}  // namespace
}  // namespace tandem
