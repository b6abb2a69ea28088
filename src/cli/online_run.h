// One online run of an engine in this process.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "cli/command_line.h"
#include "engine/engine.h"

namespace tandem {

// What can be wrong with the flags before there is an engine.
Status CheckOnlineFlags(const BenchOnlineOptions& options);

// Tokens of the longest output that the workload may ask for. Errors: those of PlanOnlineBench.
Result<int64_t> LongestOutput(const BenchOnlineOptions& options);

// The report of a run. options: its engine, url, json and dump_workload are passed over. machine: as
// MakeBenchReport takes it.
Result<nlohmann::ordered_json> MeasureOnline(Engine* engine, const BenchOnlineOptions& options,
                                             const nlohmann::ordered_json& machine);

}  // namespace tandem
