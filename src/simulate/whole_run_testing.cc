#include "simulate/whole_run_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/strategy.h"
#include "simulate/schedule_simulation.h"

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

double WholeRunThroughput(std::string_view strategy, const PlayedMachine& machine,
                          const std::vector<TraceRequest>& requests, const std::string& what) {
  constexpr int64_t kBlock = 32;
  const ScheduleLimits limits = {.max_num_seqs = 512,
                                 .max_num_batched_tokens = 2048,
                                 .reserve_blocks = std::max<int64_t>(1, machine.gpu_tokens / kBlock / 100),
                                 .num_layers = machine.costs.layers,
                                 .max_transit_tokens = 16'384,
                                 .max_cohort_rows = 512,
                                 .max_rider_rows = 256};
  ScheduleSimulation simulation(
      SimulatedBooks(kBlock, machine.gpu_tokens / kBlock, machine.cpu_tokens / kBlock), limits,
      &machine.costs);
  int64_t output_tokens = 0;
  SequenceId id = 0;
  for (const TraceRequest& request : requests) {
    simulation.Submit(++id, request.prompt_tokens, request.output_tokens);
    output_tokens += request.output_tokens;
  }
  const auto planner = CreateStrategy(strategy, &machine.costs).value();
  while (!simulation.done()) {
    const Status status = simulation.Step(planner.get());
    if (!status.ok()) {
      ADD_FAILURE() << strategy << ", " << what << ": " << status.error().message;
      return 0;
    }
  }
  EXPECT_EQ(simulation.num_finished(), std::ssize(requests)) << strategy << ", " << what;
  return static_cast<double>(output_tokens) / simulation.counts().us * 1e6;
}

}  // namespace tandem::testing
