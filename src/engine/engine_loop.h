// The engine thread: takes requests in, asks the strategy for a plan, has it executed, hands tokens out.
//
// While the device runs iteration i the thread hands out the tokens of i - 1 and plans i + 1, as if every
// sequence went on unless its length ends it, and as if riding cohorts made their visits. What turns out
// otherwise (a stop token, a visit that was skipped) is taken out of the plan or corrected before it starts;
// a new request or a cancellation makes it void:
//
//   device   [ iteration i                  ][ iteration i + 1
//   thread   start i, outputs i-1, plan i+1   results i, start i+1, outputs i, plan i+2
//
// Between two iterations the device waits for the thread: all that can is done after the start.
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
#include "base/timeline.h"
#include "engine/engine.h"
#include "engine/plan_ahead.h"
#include "execute/executor.h"
#include "kv/kv_books.h"
#include "perf/corrected_costs.h"
#include "request/request.h"
#include "schedule/strategy.h"
#include "schedule/work_shape.h"

namespace tandem {

struct EngineLoopOptions {
  ScheduleLimits limits;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  int64_t max_num_queued_reqs = 0;
  std::vector<int32_t> eos_token_ids;
  uint64_t seed = 0;
  Timeline* timeline = nullptr;  // outlives the loop
};

// Public methods: any thread. Everything else: the engine thread.
class EngineLoop {
 public:
  // All outlive the loop. costs: learn from every iteration; may be null.
  EngineLoop(const EngineLoopOptions& options, Strategy* strategy, KvBooks* books, Executor* executor,
             CorrectedCosts* costs);
  // Cancels what is in flight and joins the thread. After a stall blocks that CPU attention may still write
  // to stay taken.
  ~EngineLoop();

  Result<RequestId> Submit(RequestSpec spec, OutputCallback callback);
  void Cancel(RequestId id);
  void Drain();
  void CancelAll();
  EngineStats Stats() const;
  const ScheduleLimits& limits() const { return options_.limits; }

 private:
  void ThreadMain();
  // Moves new requests and cancellations to the engine thread's side. False once it is time to stop.
  bool TakeInbox(std::vector<std::unique_ptr<Request>>* arrived, std::vector<RequestId>* cancelled);
  // A request as strategies see it.
  static ScheduledSequence SequenceOf(const Request& request);
  // To the queue, or as AssumeComputed says.
  void Enqueue(std::unique_ptr<Request> request);
  // Lets a request that wants it begin as if all but its last token were computed. False: it does not want
  // it, or has no room.
  bool AssumeComputed(Request* request);
  void ApplyCancellations(const std::vector<RequestId>& cancelled);
  void RunIteration();
  // The plan made ahead, if it still holds, else a new one.
  IterationPlan NextPlan();
  // Plans the iteration after the one that runs.
  void PlanAhead(const IterationPlan& running);
  // False if CPU attention turned out to have stalled: nothing was applied, the plan is void.
  bool ApplyPlan(const IterationPlan& plan);
  // A cohort in flight loses its token; plans made ahead are void. After a stall cpu_tier_fails_ is true.
  void DropCohort(CohortId id);
  // That of a sequence, if one is in flight.
  void DropCohortOf(SequenceId sequence);
  // Where the cohorts are after an iteration; corrects the plan made ahead.
  void TakeProgress(const IterationPlan& plan, const IterationResult& result);
  void Preempt(SequenceId id);
  void Admit(SequenceId id);
  // The books of a result; its output goes to outputs_.
  void ApplyResult(SequenceResult result);
  // Publishes what the last iteration was, then calls the callbacks of what ApplyResult left.
  void DeliverOutputs();
  void CountSchedule(Clock::time_point start);
  // What an iteration took, and what CPU attention did in it: counted while the next one runs already.
  void CountIteration();
  void CountDeviceTime(const IterationPlan& plan, const IterationResult& result);
  void CountCpuTier(const IterationPlan& plan, const IterationResult& result);
  // Remembers what kind of work the requests are: this one ends, or begins as if others like it had ended.
  // num_output: tokens that it has generated, or is to.
  void CountEnd(const Request& request, int64_t num_output);
  // CPU attention did not answer: forgets all cohorts and ends every request whose KV lies in the cpu tier.
  void FailCpuTier();
  // Takes the cpu tier into use again once CPU attention has come back.
  void RecoverCpuTier();
  void FailRequest(RequestId id, const Error& error);
  // Ends the requests of the cohorts of a plan that could not start.
  void FailCohorts(const IterationPlan& plan, const Error& error);
  // Why a request ends when the last of num_output generated tokens is `token`, or kNone.
  FinishReason ReasonToFinish(const Request& request, int32_t token) const;
  bool EndsByLength(const Request& request, int64_t num_output) const;
  // Frees its blocks (not after a stall, when CPU attention may still write to them) and forgets it; the
  // callback must already have had its last call, or be in outputs_.
  void Forget(RequestId id);
  // Queues and blocks as they are.
  void UpdateGauges(EngineStats* stats);
  void PublishStats();
  void PublishLocked();  // the caller holds mutex_
  Status Validate(const RequestSpec& spec) const;
  ScheduledSequence& Running(SequenceId id);

  const EngineLoopOptions options_;
  Strategy* strategy_;
  KvBooks* books_;
  Executor* executor_;
  CorrectedCosts* costs_;

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable inbox_changed_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Request>> arrived_;
  std::vector<RequestId> cancelled_;
  RequestId cancel_below_ = 0;  // requests with smaller ids are to be cancelled, later ones are not
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
  struct Output {
    OutputCallback last_callback;  // of a request that has ended; empty: the request's own
    RequestOutput output;
  };
  std::vector<Output> outputs_;
  // The last iteration, until CountIteration.
  struct Ran {
    IterationPlan plan;
    IterationResult result;  // without its sequences
  };
  std::optional<Ran> uncounted_;
  std::optional<IterationPlan> planned_ahead_;
  bool ended_since_plan_ = false;  // a request, since planned_ahead_ was made
  bool cpu_tier_fails_ = false;    // it stalled when a cohort was to be dropped: FailCpuTier is to come
  // Where the search for a running sequence begins: results come in the order of the queue.
  size_t running_hint_ = 0;
  // Sequences that ended in a stall, with blocks in the cpu tier that are not free yet.
  std::vector<SequenceId> stalled_;
  WorkShape shape_;
  int64_t max_cpu_blocks_ = 0;      // in use at once
  int64_t last_device_end_ns_ = 0;  // of the iteration before, if the device went on without a pause; else 0

  std::thread thread_;  // last: starts when everything it uses exists
};

}  // namespace tandem
