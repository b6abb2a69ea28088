// Whole workloads played with predicted times: what the strategies are worth where the costs are right.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/sanitizers.h"
#include "perf/analytic_costs.h"
#include "perf/steady_times.h"
#include "perf/time_model.h"
#include "simulate/ideal_throughput_testing.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;

struct Machine {
  AnalyticCosts costs;
  int64_t gpu_tokens = 0;
  int64_t cpu_tokens = 0;
};

// 16 CPU threads.
Machine SmallSlice() {
  return {SmallSliceCosts(15, 170), 26400, 600000};
}

// A tiny gpu tier.
Machine TinySlice() {
  return {TinySliceCosts(15, 170), 2240, 150000};
}

struct Workload {
  int64_t num_requests = 0;
  int64_t prompt_len = 0;
  int64_t output_len = 0;
};

constexpr ScheduleLimits kLimits = {.max_num_seqs = 512,
                                    .max_num_batched_tokens = 2048,
                                    .num_layers = 32,
                                    .max_transit_tokens = 4096,
                                    .max_cohort_rows = 512};

// Predicted seconds for all requests, which are there from the start. Lengths vary by 10 %.
double Play(std::string_view name, const Machine& machine, const Workload& workload,
            bool knows_costs = true) {
  ScheduleLimits limits = kLimits;
  limits.reserve_blocks = std::max<int64_t>(1, machine.gpu_tokens / kBlock / 100);
  ScheduleSimulation simulation(
      SimulatedBooks(kBlock, machine.gpu_tokens / kBlock, machine.cpu_tokens / kBlock), limits,
      &machine.costs);
  for (int64_t i = 0; i < workload.num_requests; ++i) {
    simulation.Submit(static_cast<SequenceId>(i + 1), workload.prompt_len * (90 + (i * 7) % 21) / 100,
                      workload.output_len * (90 + (i * 11) % 21) / 100);
  }
  auto strategy = CreateStrategy(name, knows_costs ? &machine.costs : nullptr);
  EXPECT_TRUE(strategy.ok());
  while (!simulation.done()) {
    const Status status = simulation.Step(strategy->get());
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok() || simulation.counts().iterations > 1000000) return 0;
  }
  EXPECT_EQ(simulation.num_finished(), workload.num_requests);
  const SimulationCounts& counts = simulation.counts();
  std::printf(
      "  %-14s %7.2f s, %5ld iterations, cpu busy %.2f, rows gpu %ld main %ld cohort %ld, prefill gpu %ld "
      "cpu "
      "%ld, in %ld out %ld preempted %ld\n",
      knows_costs ? std::string(name).c_str() : "(in lumps)", counts.us / 1e6, counts.iterations,
      counts.cpu_us / counts.us, counts.gpu_rows, counts.main_cpu_rows, counts.cohort_rows,
      counts.prefilled_to_gpu, counts.prefilled_to_cpu, counts.swaps_in, counts.swaps_out,
      counts.preemptions);
  return counts.us / 1e6;
}

// Seconds that nothing beats: those of the best steady state.
double IdealSeconds(const Machine& machine, const Workload& workload) {
  const auto prompt_len = static_cast<double>(workload.prompt_len);
  const auto output_len = static_cast<double>(workload.output_len);
  const IdealMix mix = {
      .prompt_tokens_per_output = prompt_len / output_len,
      .prompt_attention_us = TimeModel(machine.costs).PromptAttentionUs(workload.prompt_len, 0) / output_len,
      .mean_context = prompt_len + output_len / 2};
  return static_cast<double>(workload.num_requests) * output_len /
         testing::IdealThroughput(mix, machine.costs, machine.gpu_tokens, machine.cpu_tokens);
}

// gpu-only as it is with costs, and without, when it takes prompts as they come. The first is the harder
// baseline.
struct Row {
  const char* label;
  Machine machine;
  Workload workload;
  // Over gpu-only, and of the ideal: what it reaches less 3 %, so that a loss shows. The constants were tuned
  // on these workloads; held_out_test.cc has others.
  double at_least;
  double of_ideal;
};

TEST(ClosedLoopTest, AsymmetricBeatsGpuOnly) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const std::array rows = {Row{"A10G class, 50 out", SmallSlice(), {300, 1000, 50}, 0.97, 0.93},
                           Row{"A10G class, 100 out", SmallSlice(), {300, 1000, 100}, 1.03, 0.93},
                           Row{"A10G class, 200 out", SmallSlice(), {300, 1000, 200}, 1.15, 0.89},
                           Row{"A10G class, 400 out", SmallSlice(), {300, 1000, 400}, 1.19, 0.83},
                           Row{"A10G class, 1600 out", SmallSlice(), {300, 1000, 1600}, 1.10, 0.68},
                           Row{"T4 class, 45 out", TinySlice(), {200, 372, 45}, 1.34, 0.92},
                           Row{"T4 class, 100 out", TinySlice(), {200, 372, 100}, 2.04, 0.81},
                           Row{"T4 class, 200 out", TinySlice(), {200, 372, 200}, 2.30, 0.68}};
  for (const Row& row : rows) {
    std::printf("%s\n", row.label);
    const double in_lumps = Play("gpu-only", row.machine, row.workload, false);
    const double gpu_only = Play("gpu-only", row.machine, row.workload);
    const double asymmetric = Play("asymmetric", row.machine, row.workload);
    const double full_offload = Play("full-offload", row.machine, row.workload);
    const double symmetric = Play("symmetric", row.machine, row.workload);
    const double simple_offload = Play("simple-offload", row.machine, row.workload);
    std::printf(
        "  over gpu-only: in lumps %.3f, asymmetric %.3f, full-offload %.3f, symmetric %.3f, simple-offload "
        "%.3f\n",
        gpu_only / in_lumps, gpu_only / asymmetric, gpu_only / full_offload, gpu_only / symmetric,
        gpu_only / simple_offload);
    const double ideal = IdealSeconds(row.machine, row.workload);
    std::printf("  of the ideal: gpu-only %.3f, asymmetric %.3f\n", ideal / gpu_only, ideal / asymmetric);
    EXPECT_LE(gpu_only, in_lumps) << row.label;
    for (const double seconds : {gpu_only, asymmetric, full_offload, symmetric, simple_offload})
      EXPECT_GE(seconds, ideal) << row.label << ": nothing is faster";
    EXPECT_GE(ideal / asymmetric, row.of_ideal) << row.label;
    EXPECT_GE(gpu_only / asymmetric, row.at_least) << row.label;
    // Offloading everything is one of the schedules that asymmetric could have chosen.
    EXPECT_LE(asymmetric, 1.03 * full_offload) << row.label;
  }
}

// Two to five requests fit. What an ideal gpu-only makes of so tiny a tier, whole blocks do not allow
// (docs/lab_notes/scheduling.md, "Room to grow").
TEST(ClosedLoopTest, GpuOnlyOfAFewRequests) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  struct Case {
    int64_t gpu_tokens;
    Workload workload;
    double of_ideal;  // what it reaches less 3 %
  };
  for (const Case& each : {Case{860, {100, 375, 100}, 0.58}, Case{1728, {200, 375, 100}, 0.79},
                           Case{2240, {200, 375, 100}, 0.83}, Case{1728, {200, 200, 150}, 0.84}}) {
    Machine machine = TinySlice();
    machine.gpu_tokens = each.gpu_tokens;
    machine.cpu_tokens = 0;
    const double of_ideal = IdealSeconds(machine, each.workload) / Play("gpu-only", machine, each.workload);
    std::printf("  gpu-only, %ld tokens, %ld/%ld: %.3f of the ideal\n", each.gpu_tokens,
                each.workload.prompt_len, each.workload.output_len, of_ideal);
    EXPECT_GE(of_ideal, each.of_ideal) << each.gpu_tokens;
  }
}

// A plan for many running requests, printed: time is not a property to fail on.
TEST(ClosedLoopTest, TimeOfAPlan) {
  const Machine machine = SmallSlice();
  ScheduleSimulation simulation(
      SimulatedBooks(kBlock, machine.gpu_tokens / kBlock, machine.cpu_tokens / kBlock), kLimits,
      &machine.costs);
  SequenceId id = 0;
  while (simulation.state().running.size() < 22)
    ASSERT_TRUE(simulation.AddRunning(++id, Tier::kGpu, 1100, 1099, 1200));
  while (simulation.state().running.size() < 508) {
    const auto num_tokens = static_cast<int64_t>(1000 + ++id % 200);
    ASSERT_TRUE(simulation.AddRunning(id, Tier::kCpu, num_tokens, num_tokens - 1, 1400));
  }
  for (int i = 0; i < 100; ++i) simulation.Submit(++id, 1000, 200);
  for (const char* name : {"gpu-only", "asymmetric", "full-offload", "symmetric", "simple-offload"}) {
    auto strategy = CreateStrategy(name, &machine.costs);
    ASSERT_TRUE(strategy.ok());
    constexpr int kPlans = 200;
    int64_t num_rows = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kPlans; ++i) {
      const IterationPlan plan = (*strategy)->Plan(simulation.state(), simulation.books());
      num_rows += plan.main.num_rows();
      for (const CohortStep& step : plan.cohorts) num_rows += static_cast<int64_t>(step.rows.size());
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    // All of the gpu tier's decodes at least: nobody is preempted in this state.
    EXPECT_GE(num_rows, 22 * kPlans) << name;
    std::printf("%-14s %6.1f us a plan, 508 running requests\n", name, took.count() / kPlans);
  }
}

}  // namespace
}  // namespace tandem
