// Throughput of an engine that gets all its requests at once.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "bench/bench_run.h"
#include "bench/energy_meter.h"
#include "bench/workload.h"
#include "engine/engine.h"

namespace tandem {

struct BenchRunOptions {
  int64_t num_warmup = 0;  // the workload's first requests, run and forgotten before the clock starts
  uint64_t seed = 0;       // of the prompts
  bool show_progress = true;
  bool steady_start = false;  // the first requests are amid their output (steady_start.h)
  // With steady_start: nobody waits. As many requests as began are there at any time, the next is sent when
  // one ends.
  bool closed_loop = false;
  // The run ends so many seconds after the last request was sent, warm_up_s of which do not count; what is
  // not done by then is cancelled. 0: it ends when all requests are done.
  double duration_s = 0;
  double warm_up_s = 0;           // less than duration_s
  EnergyMeter* energy = nullptr;  // outlives the run; null: nothing is said of energy
};

// The engine's queue must hold all requests (max_num_queued_reqs), and each must fit its context: others
// count as failed. Every request is greedy and gets exactly its number of output tokens. Blocks. If all are
// done before duration_s, the log says so, and what counts ends there. Errors: none of the requests
// completed, or with a duration, got a token that counts.
Result<BenchRun> RunOfflineBench(Engine* engine, const Workload& workload, const BenchRunOptions& options);

}  // namespace tandem
