#include "simulate/whole_run_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::testing {

AnalyticCosts SlowMemoryCosts() {
  AnalyticCosts costs = SmallSliceCosts(30, 60);
  costs.linear_us = 436e6 / 270e3;
  costs.linear_token_us = 2 * 218e6 / 100e6;
  costs.gpu_kv_ns = 4096 / 270.0;
  costs.prefill_ns = 16384 / 100e3;
  costs.swap_ns = 4096 / 24.0;
  return costs;
}

RunSetup SetupOn(const PlayedMachine& machine, std::string_view strategy) {
  constexpr int64_t kBlock = 32;
  const ScheduleLimits limits = {.max_num_seqs = 512,
                                 .max_num_batched_tokens = 2048,
                                 .reserve_blocks = std::max<int64_t>(1, machine.gpu_tokens / kBlock / 100),
                                 .num_layers = machine.costs.layers,
                                 .max_transit_tokens = 16'384,
                                 .max_cohort_rows = 512,
                                 .max_rider_rows = 256};
  return {.strategy = std::string(strategy),
          .limits = limits,
          .block_size = kBlock,
          .gpu_tokens = machine.gpu_tokens,
          .cpu_tokens = machine.cpu_tokens};
}

PlayedRun PlayWholeRun(std::string_view strategy, const PlayedMachine& machine,
                       const std::vector<TraceRequest>& requests, const std::string& what,
                       const RunMachine* real, const PlannerTuning& tuning) {
  RunSetup setup = SetupOn(machine, strategy);
  setup.tuning = tuning;
  std::vector<RunRequest> played;
  played.reserve(requests.size());
  for (const TraceRequest& request : requests)
    played.push_back({.prompt_tokens = request.prompt_tokens, .output_tokens = request.output_tokens});
  const auto run = real == nullptr ? PlayRun(setup, machine.costs, played)
                                   : PlayRunOn(*real, setup, machine.costs, played);
  if (!run.ok()) {
    ADD_FAILURE() << strategy << ", " << what << ": " << run.error().message;
    return {};
  }
  EXPECT_EQ(run->num_finished, std::ssize(requests)) << strategy << ", " << what;
  return *run;
}

double WholeRunThroughput(std::string_view strategy, const PlayedMachine& machine,
                          const std::vector<TraceRequest>& requests, const std::string& what) {
  const PlayedRun run = PlayWholeRun(strategy, machine, requests, what);
  return run.us > 0 ? static_cast<double>(run.output_tokens) / run.us * 1e6 : 0;
}

}  // namespace tandem::testing
