// What only the engine's own counters say of a benchmark.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/bench_report.h"
#include "bench/bench_run.h"

namespace tandem {

// All null for an engine in another process.
void AddEngineFields(const BenchConditions& conditions, const BenchRun& run, nlohmann::ordered_json* report);

}  // namespace tandem
