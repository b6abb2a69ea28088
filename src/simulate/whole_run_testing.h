// Whole runs on machines: all requests are there from the start, and the run ends with the last of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/analytic_costs.h"
#include "simulate/whole_run.h"
#include "traces/trace_csv.h"

namespace tandem::testing {

struct PlayedMachine {
  std::string_view name;
  AnalyticCosts costs;
  int64_t gpu_tokens = 0;
  int64_t cpu_tokens = 0;
  int64_t max_request_tokens = 0;  // longer ones are not played: gpu-only could not serve them
};

// Llama-3.1-8B on a GPU of 300 GB/s, bf16 products at 100 TFLOP/s and 24 GB, of which 6 GB are left for KV;
// eight cores that read 60 GB/s; PCIe at 24 GB/s. By data sheets, not measured.
AnalyticCosts SlowMemoryCosts();

// From the first request to the end of the last. On the machine that real says, which the machine's costs are
// believed of; nullptr: by predicted times. A plan that breaks a rule is a test's failure, and nothing
// played.
PlayedRun PlayWholeRun(std::string_view strategy, const PlayedMachine& machine,
                       const std::vector<TraceRequest>& requests, const std::string& what,
                       const RunMachine* real = nullptr, const PlannerTuning& tuning = {});
// The engine that plays them.
RunSetup SetupOn(const PlayedMachine& machine, std::string_view strategy);
// Output tokens a second of it, by predicted times.
double WholeRunThroughput(std::string_view strategy, const PlayedMachine& machine,
                          const std::vector<TraceRequest>& requests, const std::string& what);

}  // namespace tandem::testing
