// The engine thread: takes requests in, asks the strategy for a plan, has it executed, hands tokens out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "execute/executor.h"
#include "kv/tiered_cache.h"
#include "request/request.h"
#include "schedule/strategy.h"

namespace tandem {

struct EngineLoopOptions {
  ScheduleLimits limits;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  int64_t max_num_queued_reqs = 0;
  std::vector<int32_t> eos_token_ids;
  uint64_t seed = 0;
};

// Public methods: any thread. Everything else: the engine thread.
class EngineLoop {
 public:
  // strategy, cache and executor outlive the loop.
  EngineLoop(const EngineLoopOptions& options, Strategy* strategy, TieredCache* cache, Executor* executor);
  // Cancels what is in flight and joins the thread.
  ~EngineLoop();

  Result<RequestId> Submit(RequestSpec spec, OutputCallback callback);
  void Cancel(RequestId id);
  void Drain();
  void CancelAll();
  EngineStats Stats() const;

 private:
  void ThreadMain();
  // Moves new requests and cancellations to the engine thread's side. False once it is time to stop.
  bool TakeInbox(std::vector<std::unique_ptr<Request>>* arrived, std::vector<RequestId>* cancelled);
  void ApplyCancellations(const std::vector<RequestId>& cancelled);
  void RunIteration();
  void ApplyPlan(const IterationPlan& plan);
  void Preempt(SequenceId id);
  void Admit(SequenceId id);
  void ApplyResult(SequenceResult result);
  // Why a request ends with this token, or kNone.
  FinishReason ReasonToFinish(const Request& request, int32_t token) const;
  // Frees its blocks and forgets it; the callback must already have had its last call.
  void Forget(RequestId id);
  void PublishStats();
  Status Validate(const RequestSpec& spec) const;
  ScheduledSequence& Running(SequenceId id);

  const EngineLoopOptions options_;
  Strategy* strategy_;
  TieredCache* cache_;
  Executor* executor_;

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable inbox_changed_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Request>> arrived_;
  std::vector<RequestId> cancelled_;
  bool cancel_all_ = false;
  bool draining_ = false;
  bool stopping_ = false;
  int64_t num_in_flight_ = 0;
  RequestId next_id_ = 1;
  std::mt19937_64 seeds_;
  EngineStats stats_;

  // The engine thread's own.
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  ScheduleState state_;
  EngineStats counters_;

  std::thread thread_;  // last: starts when everything it uses exists
};

}  // namespace tandem
