// The public C++ API: load a model, submit requests, receive tokens. See README.md in this folder for
// ownership, threads and invariants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/duration_histogram.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "load/model_config.h"
#include "request/request.h"
#include "request/request_output.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// A consistent snapshot of gauges and counters since the start.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t gpu_blocks_total = 0;
  int64_t gpu_blocks_free = 0;
  int64_t cpu_blocks_total = 0;
  int64_t cpu_blocks_free = 0;
  int64_t block_size = 0;  // tokens a block
  uint64_t iterations = 0;
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;  // computed, repeated work after a preemption not counted
  uint64_t generation_tokens = 0;
  uint64_t rejected_requests = 0;  // queue full
  double busy_seconds = 0;         // time spent in iterations
  // Of the compute stream, by the device's clock: running, and between two iterations that followed each
  // other.
  double gpu_busy_seconds = 0;
  double gpu_gap_seconds = 0;
  double cpu_attention_busy_seconds = 0;  // mean over the workers
  DurationHistogram iteration;            // device time of an iteration
  DurationHistogram schedule;             // host time of a plan, most of it while the device runs
  std::map<std::string, uint64_t> strategy_iterations;
};

class Engine {
 public:
  // Loads the model and starts the engine thread. Blocks for the loading.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options);

  // Stops at once: unfinished requests end as kCancelled.
  virtual ~Engine() = default;

  // Any thread. Errors: kInvalidArgument with param (the prompt does not fit, a parameter is out of range),
  // kResourceExhausted (queue full), kUnavailable (draining). The callback is not called after an error.
  virtual Result<RequestId> Submit(RequestSpec spec, OutputCallback callback) = 0;
  // Any thread. Takes effect before the next iteration; the callback still gets its last call
  // (kCancelled), unless it had it already. Unknown ids are ignored.
  virtual void Cancel(RequestId id) = 0;

  // Any thread. No new requests; blocks until those in flight have finished.
  virtual void Drain() = 0;
  // Any thread. Cancels everything in flight and returns when the blocks are free.
  virtual void CancelAll() = 0;

  virtual EngineStats Stats() const = 0;  // any thread

  virtual const EngineOptions& options() const = 0;  // with defaults filled in (dtype, max_model_len, ...)
  virtual const ModelConfig& model_config() const = 0;
  virtual const GenerationDefaults& generation_defaults() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr if the model has none
  virtual int64_t max_model_len() const = 0;
  virtual std::string device_description() const = 0;
};

}  // namespace tandem
