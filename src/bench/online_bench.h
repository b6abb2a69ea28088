// Latencies of an engine, or of a server, whose requests arrive one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/bench_run.h"
#include "bench/energy_meter.h"
#include "bench/online_plan.h"
#include "engine/engine.h"

namespace tandem {

struct OnlineBenchOptions {
  int64_t num_warmup = 0;  // the workload's first requests, run at once and forgotten before the clock starts
  uint64_t seed = 0;       // of the prompts
  bool show_progress = true;
  // Requests under way at most; 0: no limit. With one the loop is no longer open: a request that has to wait
  // for another one's end starts when it is sent, and the wait shows as send delay only.
  int64_t max_concurrency = 0;
  double duration_s = 0;  // that of the plan
  bool end_sessions =
      false;               // sessions too end with the duration: turns that would be due later are not sent
  double warm_up_s = 0;    // what is due so early does not count
  double cool_down_s = 0;  // what is due so shortly before the end of the arrivals does not count
  double deadline_s = 0;   // a request that takes longer is cancelled and has failed; 0: none. From the
                           // duration's end on if sessions end with it: until then nothing is cancelled
  EnergyMeter* energy = nullptr;  // outlives the run; null: nothing is said of energy. Of an engine in this
                                  // process alone
};

// Whether the options fit each other and the plan. Errors: kInvalidArgument; param is the flag.
Status CheckOnlineOptions(const OnlineBenchOptions& options, const OnlinePlan& plan);

// Both send each request of the plan at its time, wait for all of them, and block that long. A request counts
// from the moment when it is due: a client that is late makes latencies longer. Without warm-up and cool-down
// all completed requests count, else those in a window (BenchWindow, by_due). Errors: CheckOnlineOptions, or
// no request that counts has completed.
Result<BenchRun> RunOnlineBench(Engine* engine, const OnlinePlan& plan, const OnlineBenchOptions& options);

struct CompletionServer;

// The same against a server, over HTTP, from this thread alone. vocab_size: prompts have tokens below it.
// Raises the process's limit of open files if it must. Error besides: kResourceExhausted: it cannot be raised
// that far.
Result<BenchRun> RunOnlineBench(const CompletionServer& server, int64_t vocab_size, const OnlinePlan& plan,
                                const OnlineBenchOptions& options);

}  // namespace tandem
