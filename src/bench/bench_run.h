// What a benchmark measured, whoever sent the requests.
#pragma once

#include <optional>
#include <vector>

#include "bench/request_recorder.h"
#include "engine/engine.h"

namespace tandem {

// Snapshots of counters that began with the engine: what belongs to the run is the difference.
struct EngineStatsOfRun {
  EngineStats before;
  EngineStats after;
};

struct BenchRun {
  std::vector<RequestRecord> records;      // in the order of the workload
  double duration_s = 0;                   // from the first request's start to the last token
  std::optional<EngineStatsOfRun> engine;  // absent if the engine ran in another process
};

}  // namespace tandem
