// Throughput of an engine that gets all its requests at once.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "bench/bench_run.h"
#include "bench/workload.h"
#include "engine/engine.h"

namespace tandem {

struct BenchRunOptions {
  int64_t num_warmup = 0;  // the workload's first requests, run and forgotten before the clock starts
  uint64_t seed = 0;       // of the prompts
  bool show_progress = true;
};

// The engine's queue must hold all requests (max_num_queued_reqs), and each must fit its context: others
// count as failed. Every request is greedy and gets exactly its number of output tokens. Blocks. Errors: none
// of the requests completed (the first one's reason).
Result<BenchRun> RunOfflineBench(Engine* engine, const Workload& workload, const BenchRunOptions& options);

}  // namespace tandem
