#include "simulate/plan_workloads_testing.h"

#include <algorithm>

namespace tandem::testing {
namespace {

constexpr int64_t kBlock = 32;

// The same numbers everywhere.
uint64_t Mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Uniform in +-percent around mean, at least 2.
int64_t Length(int64_t mean, int64_t percent, uint64_t key) {
  const int64_t half = mean * percent / 100;
  const auto offset = static_cast<int64_t>(Mixed(key) % static_cast<uint64_t>(2 * half + 1));
  return std::max<int64_t>(2, mean - half + offset);
}

ScheduleLimits Limits(int64_t num_layers, int64_t max_rider_rows) {
  return {.max_num_seqs = 512,
          .max_num_batched_tokens = 2048,
          .num_layers = num_layers,
          .max_transit_tokens = 4096,
          .max_cohort_rows = 512,
          .max_rider_rows = max_rider_rows};
}

AnalyticCosts OfLayers(AnalyticCosts costs, int64_t num_layers) {
  costs.layers = num_layers;
  return costs;
}

SimulatedBooks BooksOf(const PlannedWorkload& workload) {
  return {kBlock, workload.gpu_tokens / kBlock, workload.cpu_tokens / kBlock};
}

ScheduleLimits LimitsOf(const PlannedWorkload& workload) {
  ScheduleLimits limits = workload.limits;
  limits.reserve_blocks = std::max<int64_t>(1, workload.gpu_tokens / kBlock / 100);
  return limits;
}

}  // namespace

std::vector<PlannedWorkload> PlannedWorkloads() {
  const AnalyticCosts small = SmallSliceCosts(15, 170);
  const AnalyticCosts tiny = TinySliceCosts(15, 170);
  // Rates that were measured on machines with one GPU and 14 cores.
  const AnalyticCosts slow_cpu = SmallSliceCosts(30, 110);
  const AnalyticCosts slow_tiny = TinySliceCosts(30, 110);
  std::vector<PlannedWorkload> all;
  const auto add = [&](const PlannedWorkload& workload) { all.push_back(workload); };
  add({"gpu-only without costs", "gpu-only", small, false, 26'400, 600'000, Limits(32, 0), 150, 1000, 200});
  add({"gpu-only", "gpu-only", small, true, 26'400, 600'000, Limits(32, 0), 150, 1000, 200});
  add({"gpu-only, very different lengths", "gpu-only", slow_cpu, true, 26'400, 0, Limits(32, 0), 300, 700,
       150, 95});
  add({"simple-offload", "simple-offload", small, true, 26'400, 600'000, Limits(32, 0), 150, 1000, 100});
  add({"symmetric", "symmetric", tiny, true, 2'240, 150'000, Limits(32, 0), 150, 370, 80});
  add({"full-offload, tiny slice", "full-offload", tiny, true, 2'240, 150'000, Limits(32, 0), 300, 370, 100,
       90});
  add({"asymmetric", "asymmetric", small, true, 26'400, 600'000, Limits(32, 0), 300, 1000, 200});
  add({"asymmetric, long outputs", "asymmetric", slow_cpu, true, 26'400, 450'000, Limits(32, 0), 250, 1000,
       800});
  PlannedWorkload workload = {"asymmetric, a limit of iterations",
                              "asymmetric",
                              slow_tiny,
                              true,
                              2'240,
                              150'000,
                              Limits(32, 0),
                              300,
                              370,
                              45,
                              90};
  workload.limits.max_iteration_us = 30'000;
  workload.gap_us = 150'000;
  add(workload);
  workload = {"asymmetric, the cpu tier comes back",
              "asymmetric",
              small,
              true,
              26'400,
              600'000,
              Limits(12, 0),
              200,
              1000,
              200};
  workload.costs = OfLayers(small, 12);
  workload.num_begun = 120;
  workload.failed_iterations = 300;
  add(workload);
  add({"async", "async", slow_cpu, true, 26'400, 600'000, Limits(32, 256), 500, 1000, 400});
  workload = {"async, one cohort", "async", slow_cpu, true, 26'400, 600'000, Limits(32, 256), 300, 1000, 400};
  workload.limits.max_riding_cohorts = 1;
  add(workload);
  workload = {"async, amid the work, small cohorts",
              "async",
              slow_tiny,
              true,
              2'240,
              150'000,
              Limits(32, 64),
              300,
              370,
              200,
              80};
  workload.limits.max_riding_cohorts = 4;
  workload.num_begun = 100;
  add(workload);
  workload = {"async, a hurry and joins at random",
              "async",
              OfLayers(small, 2),
              true,
              26'400,
              600'000,
              Limits(2, 256),
              300,
              800,
              150,
              60};
  workload.limits.max_tpot_us = 40'000;
  workload.flexible_percent = 50;
  workload.join_probability = 0.6;
  add(workload);
  add({"apex", "apex", slow_cpu, true, 26'400, 600'000, Limits(32, 256), 300, 1000, 300});
  workload = {"apex, tiny slice", "apex", slow_tiny, true, 2'240, 150'000, Limits(12, 64), 300, 370, 60, 90};
  workload.costs = OfLayers(slow_tiny, 12);
  workload.gap_us = 40'000;
  add(workload);
  add({"auto", "auto", slow_cpu, true, 26'400, 600'000, Limits(32, 256), 500, 1000, 400});
  workload = {"auto, arrivals", "auto", slow_tiny, true, 2'240, 150'000, Limits(32, 256), 400, 370, 45, 95};
  workload.gap_us = 140'000;
  add(workload);
  workload = {"auto, in a hurry or not", "auto", slow_cpu, true, 34'000, 450'000,
              Limits(32, 256),           400,    900,      300,  95};
  workload.limits.max_tpot_us = 120'000;
  workload.flexible_percent = 40;
  workload.num_begun = 150;
  add(workload);
  workload = {
      "switching", "switching", OfLayers(slow_cpu, 12), true, 12'000, 200'000, Limits(12, 64), 250, 500,
      120,         80};
  workload.flexible_percent = 30;
  workload.join_probability = 0.8;
  add(workload);
  return all;
}

PlayedWorkload::PlayedWorkload(const PlannedWorkload& workload, const PlannerTuning& tuning)
    : workload_(workload), simulation_(BooksOf(workload), LimitsOf(workload), &workload.costs, tuning) {
  if (workload.join_probability >= 0) simulation_.JoinAtRandom(workload.join_probability, 5);
  for (; num_submitted_ < workload.num_begun; ++num_submitted_) {
    const auto key = static_cast<uint64_t>(num_submitted_);
    const int64_t prompt_len = Length(workload.prompt_len, workload.spread_percent, 3 * key);
    const int64_t output_len = Length(workload.output_len, workload.spread_percent, 3 * key + 1);
    const auto made = static_cast<int64_t>(Mixed(3 * key + 2) % static_cast<uint64_t>(output_len - 1)) + 1;
    const auto id = static_cast<SequenceId>(num_submitted_ + 1);
    const int64_t num_tokens = prompt_len + made;
    const int64_t blocks = (num_tokens + kBlock - 1) / kBlock;
    const bool gpu = simulation_.books().free_blocks(Tier::kGpu) > blocks + 8;
    if (!simulation_.AddRunning(id, gpu ? Tier::kGpu : Tier::kCpu, num_tokens, num_tokens - 1,
                                prompt_len + output_len, prompt_len))
      break;
  }
  simulation_.state().cpu_tier_usable = workload.failed_iterations == 0;
}

void PlayedWorkload::Submit() {
  const auto key = static_cast<uint64_t>(num_submitted_);
  const bool flexible = Mixed(key ^ 0xf1e0) % 100 < static_cast<uint64_t>(workload_.flexible_percent);
  simulation_.Submit(static_cast<SequenceId>(num_submitted_ + 1),
                     Length(workload_.prompt_len, workload_.spread_percent, 3 * key),
                     Length(workload_.output_len, workload_.spread_percent, 3 * key + 1), flexible);
  ++num_submitted_;
  due_us_ += workload_.gap_us * static_cast<double>(Mixed(key ^ 0xa44) % 2001) / 1000;
}

bool PlayedWorkload::Next() {
  ++iteration_;
  if (iteration_ == workload_.failed_iterations) simulation_.state().cpu_tier_usable = true;
  if (simulation_.done() && num_submitted_ < workload_.num_requests)
    idle_us_ = std::max(idle_us_, due_us_ - simulation_.counts().us);
  while (num_submitted_ < workload_.num_requests && due_us_ <= simulation_.counts().us + idle_us_) Submit();
  return !simulation_.done() && iteration_ < workload_.max_iterations;
}

}  // namespace tandem::testing
