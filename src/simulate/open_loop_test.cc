// Requests that come at a rate, played with predicted times: who keeps up, and how many wait or run
// meanwhile.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string_view>

#include "perf/analytic_costs.h"
#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kGpuTokens = 2240;
constexpr int64_t kCpuTokens = 150'000;
constexpr int64_t kPromptLen = 372;
constexpr int64_t kOutputLen = 45;

// CPU attention and the reading of weights at the rates that they have on the H200 machines.
AnalyticCosts TinySlice() {
  AnalyticCosts costs = TinySliceCosts(30, 110);
  costs.linear_us = 480;
  return costs;
}

struct Present {
  double mean = 0;  // requests that wait or run, over time
  double at_the_end = 0;
};

// Poisson arrivals into an empty engine. What is there at the beginning does not count.
Present Play(std::string_view name, const AnalyticCosts& costs, double requests_per_s) {
  constexpr double kSeconds = 90;
  constexpr double kFirstSeconds = 10;
  const ScheduleLimits limits{.max_num_seqs = 512,
                              .max_num_batched_tokens = 2048,
                              .reserve_blocks = 1,
                              .num_layers = costs.layers,
                              .max_transit_tokens = 16384,
                              .max_cohort_rows = 512,
                              .max_rider_rows = 512};
  ScheduleSimulation simulation(SimulatedBooks(kBlock, kGpuTokens / kBlock, kCpuTokens / kBlock), limits,
                                &costs);
  auto strategy = CreateStrategy(name, &costs).value();
  std::mt19937 random(7);
  std::exponential_distribution<double> gap_s(requests_per_s);
  std::exponential_distribution<double> length(1.0 / kOutputLen);
  SequenceId id = 0;
  double now_s = 0;
  double due_s = 0;
  double counted_s = 0;
  Present present;
  while (now_s < kSeconds) {
    for (; due_s <= now_s; due_s += gap_s(random)) {
      const auto output_len = std::max<int64_t>(2, std::llround(length(random)));
      simulation.Submit(++id, kPromptLen, std::min<int64_t>(output_len, 400));
    }
    if (simulation.done()) {
      now_s = due_s;
      continue;
    }
    const double before_us = simulation.counts().us;
    const Status status = simulation.Step(strategy.get());
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok()) return {};
    const double step_s = (simulation.counts().us - before_us) / 1e6;
    now_s += step_s;
    const ScheduleState& state = simulation.state();
    present.at_the_end = static_cast<double>(state.waiting.size() + state.running.size());
    if (now_s < kFirstSeconds) continue;
    present.mean += step_s * present.at_the_end;
    counted_s += step_s;
  }
  present.mean /= counted_s;
  std::printf("  %-10s %.1f requests/s: %5.1f present, a token every %.3f s, %3.0f at the end\n", name.data(),
              requests_per_s, present.mean, present.mean / requests_per_s / kOutputLen, present.at_the_end);
  return present;
}

constexpr double kRate = 7;

// By Little's law the mean number present is the rate times the time that a request takes.
TEST(OpenLoopTest, TheCpuTierKeepsUpWhereTheGpuTierDoesNot) {
  const AnalyticCosts costs = TinySlice();
  const Present gpu_only = Play("gpu-only", costs, kRate);
  for (const char* name : {"asymmetric", "auto"}) {
    const Present hybrid = Play(name, costs, kRate);
    EXPECT_LT(hybrid.mean, 0.4 * gpu_only.mean) << name;
    // gpu-only falls behind: of 90 s it ends with the work of 20 more, at 7 requests a second. Who keeps up
    // ends with about as many as were there all the time.
    EXPECT_GT(gpu_only.at_the_end, 1.5 * gpu_only.mean);
    EXPECT_LT(hybrid.at_the_end, 1.25 * hybrid.mean) << name;
  }
}

// Requests that come more slowly than they could be served do not wait in the cpu tier until it holds as many
// as it would take to serve the most: 45 would be present.
TEST(OpenLoopTest, FewRequestsInTheCpuTierDecodeAtOnce) {
  const AnalyticCosts costs = TinySlice();
  for (const char* name : {"asymmetric", "auto"}) EXPECT_LT(Play(name, costs, kRate).mean, 30) << name;
}

}  // namespace
}  // namespace tandem
