// The public C++ API: load a model, submit requests, receive tokens. See README.md in this folder for
// ownership, threads and invariants.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/duration_histogram.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/token_histogram.h"
#include "load/model_config.h"
#include "perf/cost_table.h"
#include "planning/schedule_state.h"
#include "request/request.h"
#include "request/request_output.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// A consistent snapshot of gauges and counters since the start, or since the last UseStrategy.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t gpu_blocks_total = 0;
  int64_t gpu_blocks_free = 0;
  int64_t cpu_blocks_total = 0;
  int64_t cpu_blocks_free = 0;
  int64_t block_size = 0;         // tokens a block
  int64_t cpu_kv_tokens = 0;      // that the cpu tier's blocks in use have room for
  int64_t max_cpu_kv_tokens = 0;  // at most since the start
  uint64_t iterations = 0;
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;       // computed, repeated work after a preemption not counted
  uint64_t generation_tokens = 0;   // drawn, those that their client had no use for included
  TokenHistogram iteration_tokens;  // prompt_tokens and generation_tokens of an iteration
  uint64_t rejected_requests = 0;   // queue full
  double busy_seconds = 0;          // time spent in iterations
  // Of the compute stream, by the device's clock: running, and between two iterations that followed each
  // other.
  double gpu_busy_seconds = 0;
  double gpu_gap_seconds = 0;
  double cpu_attention_busy_seconds = 0;  // mean over the workers
  uint64_t cpu_attention_kv_bytes = 0;    // read by them
  uint64_t swapped_tokens = 0;   // tokens whose KV changed its tier, prefills to the cpu tier included
  uint64_t cpu_tier_tokens = 0;  // of generation_tokens: those of requests whose KV lay in the cpu tier
  // Visits that riding cohorts made, and that they did not make because their attention was not done.
  uint64_t rider_visits = 0;
  uint64_t rider_skips = 0;
  // Of iterations that a cost model predicted: what it said, and how far off it was (absolute values).
  double predicted_seconds = 0;
  double prediction_error_seconds = 0;
  DurationHistogram iteration;  // device time of an iteration
  DurationHistogram schedule;   // host time of a plan, most of it while the device runs
  std::map<std::string, uint64_t> strategy_iterations;
};

class Strategy;

class Engine {
 public:
  // A strategy for the costs of this machine, null before these are known: until then it is only asked what
  // it can do.
  using MakeStrategy = std::function<Result<std::unique_ptr<Strategy>>(const LayerCosts* costs)>;
  // Loads the model and starts the engine thread. Blocks for the loading. make_strategy: in place of the one
  // that the options name, until UseStrategy.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                MakeStrategy make_strategy = nullptr);

  // Stops at once: unfinished requests end as kCancelled.
  virtual ~Engine() = default;

  // Any thread. Errors: kInvalidArgument with param (the prompt does not fit, a parameter is out of range),
  // kResourceExhausted (queue full), kUnavailable (draining). The callback is not called after an error.
  virtual Result<RequestId> Submit(RequestSpec spec, OutputCallback callback) = 0;
  // For benchmarks that begin amid the work, and for nobody else: what is generated means nothing. If a tier
  // has room, all but the last token of the prompt count as computed, and its KV is whatever the blocks hold;
  // otherwise it is prefilled as any other. num_made_tokens: the last tokens of the prompt count as output
  // made before, where it is learned what requests are like. Else as Submit.
  virtual Result<RequestId> SubmitBegun(RequestSpec spec, int64_t num_made_tokens,
                                        OutputCallback callback) = 0;
  // Any thread. Takes effect before the next iteration; the callback still gets its last call
  // (kCancelled), unless it had it already. Unknown ids are ignored.
  virtual void Cancel(RequestId id) = 0;

  // Any thread. No new requests; blocks until those in flight have finished.
  virtual void Drain() = 0;
  // Any thread. Cancels everything in flight and returns when the blocks are free.
  virtual void CancelAll() = 0;

  // Goes on with another strategy as if the engine had just started with it: counters, and what was learned
  // from requests and iterations, begin anew; options() names it. Cancels what is in flight. No other thread
  // may be in a call. async_cohorts: as in EngineOptions. Errors: kUnsupported if there is no such strategy,
  // or the engine was created without what it needs (a cpu tier, costs, room for riders: "auto" with a cpu
  // tier has all of them); kUnavailable while CPU attention hangs.
  virtual Status UseStrategy(const std::string& name, int64_t async_cohorts) = 0;

  virtual EngineStats Stats() const = 0;  // any thread

  virtual const EngineOptions& options() const = 0;  // with defaults filled in (dtype, max_model_len, ...)
  virtual const ModelConfig& model_config() const = 0;
  virtual const GenerationDefaults& generation_defaults() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr if the model has none
  virtual int64_t max_model_len() const = 0;
  virtual std::string device_description() const = 0;
  // What the scheduler knows of this machine; null if the strategy needs no costs.
  virtual const CostTable* cost_table() const = 0;
  // The same corrected by what iterations took so far, as the strategy sees it. Only while no request is
  // there; until UseStrategy.
  virtual const LayerCosts* learned_costs() const = 0;
  virtual const ScheduleLimits& schedule_limits() const = 0;
};

}  // namespace tandem
