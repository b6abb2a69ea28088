// What the flags of an offline benchmark mean for the engine, for a run and for its report.
#pragma once

#include "bench/bench_report.h"
#include "bench/offline_bench.h"
#include "bench/workload.h"
#include "cli/command_line.h"
#include "engine/engine_options.h"

namespace tandem {

EngineOptions OfflineEngineOptions(const BenchOptions& options);
// energy: outlives the run.
BenchRunOptions OfflineRunOptions(const BenchOptions& options, EnergyMeter* energy);
// workload: without the requests that are too long. engine: with defaults filled in.
BenchConditions OfflineConditions(const BenchOptions& options, const Workload& workload,
                                  const EngineOptions& engine);

}  // namespace tandem
