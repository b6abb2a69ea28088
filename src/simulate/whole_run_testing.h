// Whole runs on machines: all requests are there from the start, and the run ends with the last of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/analytic_costs.h"
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

// Output tokens a second from the first request to the end of the last, by predicted times. A plan that
// breaks a rule is a test's failure, and 0. what: names the run in failures.
double WholeRunThroughput(std::string_view strategy, const PlayedMachine& machine,
                          const std::vector<TraceRequest>& requests, const std::string& what);

}  // namespace tandem::testing
