// Host time of planning an iteration, by measured costs as the engine has them: each strategy begins with 512
// requests amid their output, which fill both tiers (gpu-only: one as large), and 700 that wait, of 150 to
// 450 prompt and 100 to 300 output tokens. Plans count while at least 400 requests run. Times are of the
// thread, so that what else the machine does hardly counts.
//
//   time_plans [--json FILE] [--only STRATEGY]

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/hashed_uniform.h"
#include "perf/corrected_costs.h"
#include "policy/strategy.h"
#include "simulate/measured_costs_testing.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kMaxNumSeqs = 512;
constexpr SequenceId kNumRequests = 1'212;
constexpr int64_t kFewestRunning = 400;

int64_t LengthAround(int64_t mean, SequenceId id, uint64_t seed) {
  return mean / 2 + static_cast<int64_t>(HashedBits(seed, id) % static_cast<uint64_t>(mean));
}

double ThreadUs() {
  timespec now{};
  TANDEM_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0, "the thread's clock cannot be read");
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

struct PlanTimes {
  std::vector<double> us;  // of each plan

  double mean_us() const { return std::reduce(us.begin(), us.end()) / static_cast<double>(us.size()); }
  double QuantileUs(double share) {
    const auto nth = us.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(us.size() - 1));
    std::ranges::nth_element(us, nth);
    return *nth;
  }
};

Result<PlanTimes> TimePlans(std::string_view name, const CostTable& table) {
  const CorrectedCosts costs(&table);
  const ScheduleLimits limits{.max_num_seqs = kMaxNumSeqs,
                              .max_num_batched_tokens = 2048,
                              .reserve_blocks = testing::kMeasuredGpuTokens / kBlock / 100,
                              .num_layers = costs.num_layers(),
                              .max_transit_tokens = 16'384,
                              .max_cohort_rows = 512,
                              .max_rider_rows = 256};
  TANDEM_ASSIGN_OR_RETURN(const auto strategy, CreateStrategy(name, &costs));
  int64_t gpu_tokens = testing::kMeasuredGpuTokens;
  if (!strategy->uses_cpu_tier()) gpu_tokens += testing::kMeasuredCpuTokens;
  ScheduleSimulation simulation(
      SimulatedBooks(kBlock, gpu_tokens / kBlock, testing::kMeasuredCpuTokens / kBlock), limits, &costs);
  for (SequenceId id = 1; id <= kNumRequests; ++id) {
    const int64_t prompt_len = LengthAround(300, id, 1);
    const int64_t output_len = LengthAround(200, id, 2);
    if (id > kMaxNumSeqs) {
      simulation.Submit(id, prompt_len, output_len);
      continue;
    }
    const int64_t num_tokens = prompt_len + 1 + static_cast<int64_t>(id) % (output_len - 1);
    const auto add_to = [&](Tier tier) {
      return simulation.AddRunning(id, tier, num_tokens, num_tokens - 1, prompt_len + output_len, prompt_len);
    };
    if (!add_to(Tier::kGpu)) TANDEM_CHECK(add_to(Tier::kCpu), "request {} has no room", id);
  }
  PlanTimes times;
  while (!simulation.done()) {
    const double begin_us = ThreadUs();
    const IterationPlan plan = strategy->Plan(simulation.state(), simulation.books());
    const double took_us = ThreadUs() - begin_us;
    if (std::ssize(simulation.state().running) < kFewestRunning) break;
    times.us.push_back(took_us);
    TANDEM_RETURN_IF_ERROR(simulation.Apply(plan));
  }
  return times;
}

int Main(const std::string& json_path, std::string_view only) {
  const Result<CostTable> table = testing::MeasuredCosts();
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", table.error().message);
    return 1;
  }
  nlohmann::ordered_json report;
  fmt::print("| strategy | plans | mean us | p99 us | longest us |\n|---|---|---|---|---|\n");
  for (const std::string_view name : StrategyNames()) {
    if (!only.empty() && name != only) continue;
    Result<PlanTimes> times = TimePlans(name, *table);
    if (!times.ok()) {
      fmt::print(stderr, "{}: {}\n", name, times.error().message);
      return 1;
    }
    const double p99_us = times->QuantileUs(0.99);
    const double longest_us = times->QuantileUs(1);
    fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} |\n", name, times->us.size(), times->mean_us(), p99_us,
               longest_us);
    report[std::string(name)] = {{"num_plans", times->us.size()},
                                 {"mean_us", times->mean_us()},
                                 {"p99_us", p99_us},
                                 {"longest_us", longest_us}};
  }
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  std::string json_path;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--json") json_path = argv[i + 1];
    if (std::string_view(argv[i]) == "--only") only = argv[i + 1];
  }
  return tandem::Main(json_path, only);
}
