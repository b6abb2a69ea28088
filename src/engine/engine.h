// The public C++ API: load a model, submit requests, receive tokens. See README.md in this folder for
// ownership, threads and invariants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/kv_layout.h"
#include "base/result.h"
#include "base/timeline.h"
#include "engine/engine_options.h"
#include "engine/engine_stats.h"
#include "engine/live_view.h"
#include "load/model_config.h"
#include "perf/cost_table.h"
#include "planning/schedule_state.h"
#include "request/request.h"
#include "request/request_output.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

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

  // Any thread. What has been computed so far is not found by requests that are submitted from now on.
  virtual void ForgetPrefixes() = 0;
  // Any thread. No new requests; blocks until those in flight have finished.
  virtual void Drain() = 0;
  // Any thread. Cancels everything in flight and returns when the blocks are free.
  virtual void CancelAll() = 0;

  // What becomes of what iterations have taught about costs.
  enum class Learned { kForget, kKeep };
  // Goes on with another strategy as if the engine had just started with it: counters, and what was learned
  // from requests and, unless it is kept, from iterations, begin anew; options() names it. Cancels what is in
  // flight. No other thread may be in a call. async_cohorts: as in EngineOptions. Errors: kUnsupported if
  // there is no such strategy, or the engine was created without what it needs (a cpu tier, costs, room for
  // riders: "auto" with a cpu tier has all of them); kUnavailable while CPU attention hangs.
  virtual Status UseStrategy(const std::string& name, int64_t async_cohorts, Learned learned) = 0;

  virtual EngineStats Stats() const = 0;  // any thread
  // Any thread. What has become of a shard that does not answer: every request ends with it from then on.
  virtual std::optional<Error> failure() const = 0;

  // Any thread. While watched, the engine keeps what it is at; otherwise that costs nothing. Begins and ends
  // with nothing.
  virtual void Watch(bool watched) = 0;
  // Any thread. At most an iteration or a tenth of a second old. Null unless watched, and before the engine
  // had anything to do since.
  virtual std::shared_ptr<const LiveView> Live() const = 0;
  // Any thread. What ran in the last iteration; empty unless watched.
  virtual std::vector<TimelineSpan> LastIteration() const = 0;

  virtual const EngineOptions& options() const = 0;  // with defaults filled in (dtype, max_model_len, ...)
  virtual const ModelConfig& model_config() const = 0;
  virtual const GenerationDefaults& generation_defaults() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr if the model has none
  virtual int64_t max_model_len() const = 0;
  // Of K and V of a token in all layers, in the tier's type.
  virtual int64_t kv_token_bytes(Tier tier) const = 0;
  virtual const KvFormat& kv_format(Tier tier) const = 0;
  virtual std::string device_description() const = 0;
  // That a layer's linear operations read, on average.
  virtual double layer_weight_bytes() const = 0;
  // That the product for the logits reads.
  virtual double head_weight_bytes() const = 0;
  // What the scheduler knows of this machine; null if the strategy needs no costs.
  virtual const CostTable* cost_table() const = 0;
  // A copy of what the strategy goes by: the same corrected by what iterations took so far; null likewise.
  // Only while no request is there; valid until UseStrategy.
  virtual std::unique_ptr<LayerCosts> LearnedCosts() const = 0;
  virtual const ScheduleLimits& schedule_limits() const = 0;
};

}  // namespace tandem
