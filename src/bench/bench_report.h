// The result of a benchmark as one JSON object and as a table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/arrivals.h"
#include "bench/bench_run.h"
#include "engine/engine_options.h"

namespace tandem {

// Of a server in another process.
struct BenchServer {
  std::string url;
  std::string model;  // as the server names it
  int64_t vocab_size = 0;
};

// How the requests of an online benchmark arrived.
struct OnlineConditions {
  ArrivalPlan arrivals;
  int64_t max_concurrency = 0;  // 0: no limit
  double warm_up_s = 0;
  double cool_down_s = 0;
  double deadline_s = 0;              // 0: none
  std::optional<BenchServer> server;  // absent: the engine ran in this process
};

// Under which conditions a run was made.
struct BenchConditions {
  std::string mode;     // "offline" | "online"
  std::string command;  // the command line
  std::string workload;
  int64_t num_dropped = 0;
  int64_t num_warmup = 0;
  bool steady_start = false;
  bool closed_loop = false;
  uint64_t seed = 0;
  EngineOptions engine;  // with defaults filled in; means nothing if a server worked the requests off
  std::optional<OnlineConditions> online;
};

// Now, as reports say it: UTC, 2026-01-31T12:00:00Z.
std::string DateOfReport();

// Fields that vLLM's benchmark also writes have its names and meanings: latencies and token counts are those
// of completed requests; a time to first token counts from the start of the request, the time per output
// token is that of the tokens behind the first. In a run with a window, what arrives in it counts instead
// (run_totals.h). gpu_busy, gpu_gap (between iterations) and
// cpu_attention_busy are shares of the run. docs/bench.md has all fields. What nothing measured is null.
// machine: describes where it ran.
nlohmann::ordered_json MakeBenchReport(const BenchConditions& conditions, const BenchRun& run,
                                       const nlohmann::ordered_json& machine);

// A few lines for people, from a report.
std::string FormatBenchTable(const nlohmann::ordered_json& report);

// Error: kIo; param is "json".
Status WriteBenchReport(const nlohmann::ordered_json& report, const std::string& path);

}  // namespace tandem
