// What an engine counts: iterations, tokens, times, and how full the tiers are.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "engine/strategy_ledger.h"
#include "execute/executor.h"
#include "kv/kv_books.h"
#include "perf/corrected_costs.h"
#include "plan/iteration_plan.h"
#include "planning/schedule_state.h"

namespace tandem {

// Engine thread only.
class EngineCounters {
 public:
  // All outlive it. costs: learn from every iteration; may be null. num_attention_threads: 0 without a cpu
  // tier.
  EngineCounters(const KvBooks* kv, const ScheduleState* state, CorrectedCosts* costs,
                 int64_t num_attention_threads)
      : kv_(kv), state_(state), costs_(costs), num_attention_threads_(num_attention_threads) {}

  EngineStats& stats() { return stats_; }
  // With gauges as they are now.
  const EngineStats& Snapshot();
  // Queues and blocks as they are.
  void UpdateGauges(EngineStats* stats);

  // An iteration has ended: what it took, what CPU attention did in it, and how many tokens stats() got since
  // the one before, is counted by Count, while the next one runs already. result: without its sequences.
  void Keep(IterationPlan plan, IterationResult result);
  void Count();
  // The next iteration does not follow the one before without a pause.
  void Pause() { last_device_end_ns_ = 0; }

 private:
  struct Ran {
    IterationPlan plan;
    IterationResult result;
  };
  // Tokens drawn since the iteration before.
  uint64_t CountTokens();
  void CountDeviceTime(const Ran& ran);
  void CountCpuTier(const Ran& ran);
  void CountStrategy(const Ran& ran, uint64_t num_drawn);

  const KvBooks* kv_;
  const ScheduleState* state_;
  CorrectedCosts* costs_;
  int64_t num_attention_threads_;
  EngineStats stats_;
  std::optional<Ran> uncounted_;
  uint64_t num_tokens_counted_ = 0;  // of prompt and generation, by iteration_tokens
  uint64_t num_drawn_counted_ = 0;   // of generation, by ledger_
  StrategyLedger ledger_;
  int64_t max_cpu_blocks_ = 0;      // in use at once
  int64_t last_device_end_ns_ = 0;  // of the iteration before, if the device went on without a pause; else 0
};

}  // namespace tandem
