// The result of a benchmark as one JSON object and as a table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "bench/bench_run.h"
#include "engine/engine_options.h"

namespace tandem {

// Under which conditions a run was made.
struct BenchConditions {
  std::string mode;     // "offline"
  std::string command;  // the command line
  std::string workload;
  int64_t num_dropped = 0;
  int64_t num_warmup = 0;
  uint64_t seed = 0;
  EngineOptions engine;  // with defaults filled in
};

// Fields that vLLM's benchmark also writes have its names and meanings: latencies and token counts are those
// of completed requests; a time to first token counts from the start of the request, the time per output
// token is that of the tokens behind the first. gpu_busy, gpu_gap (between iterations) and
// cpu_attention_busy are shares of the run. What nothing measured is null. machine: describes where it
// ran.
nlohmann::ordered_json MakeBenchReport(const BenchConditions& conditions, const BenchRun& run,
                                       const nlohmann::ordered_json& machine);

// A few lines for people, from a report.
std::string FormatBenchTable(const nlohmann::ordered_json& report);

// Error: kIo; param is "json".
Status WriteBenchReport(const nlohmann::ordered_json& report, const std::string& path);

}  // namespace tandem
