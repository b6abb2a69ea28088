// The engine thread: takes requests in, asks the strategy for a plan, has it executed, hands tokens out.
//
// While the device runs iteration i the thread hands out the tokens of i - 1 and plans i + 1, as if every
// sequence went on unless its length ends it, and as if riding cohorts made their visits. What turns out
// otherwise (a stop token, a cancellation, a visit that was skipped) is taken out of the plan or corrected
// before it starts; a new request makes it void:
//
//   device   [ iteration i                  ][ iteration i + 1
//   thread   start i, outputs i-1, plan i+1   results i, start i+1, outputs i, plan i+2
//
// Between two iterations the device waits for the thread: all that can is done after the start. Where a plan
// allows it, even that wait is none: i + 1 is enqueued behind i before that ends (run_ahead.h).
//
// The loop only keeps the order of things. Its parts: what callers share with it (inbox.h), requests, queues
// and their blocks (request_books.h), what results become (results.h), what is counted (engine_counters.h),
// plans made ahead (plan_ahead.h), iterations enqueued ahead (run_ahead.h), the input of an iteration
// (iteration_inputs.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "base/block_hash.h"
#include "base/result.h"
#include "base/timeline.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "engine/grammar_masks.h"
#include "engine/inbox.h"
#include "engine/kv_event_collector.h"
#include "engine/live_watch.h"
#include "engine/plan_ahead.h"
#include "engine/request_books.h"
#include "engine/results.h"
#include "engine/run_ahead.h"
#include "execute/worker_group.h"
#include "kv/kv_books.h"
#include "kv_events/kv_event_publisher.h"
#include "perf/corrected_costs.h"
#include "policy/strategy.h"
#include "request/request.h"

namespace tandem {

struct EngineLoopOptions {
  ScheduleLimits limits;
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  int64_t max_num_queued_reqs = 0;
  std::vector<int32_t> eos_token_ids;
  uint64_t seed = 0;
  bool async_scheduling = true;  // iterations may be enqueued ahead
  // Who begins as another request did begins with what was computed for it; absent: nobody. Of hashes.
  std::optional<SipHashKey> prefix_key;
  KvEventPublisher* kv_events = nullptr;  // null: nobody hears of the cache; outlives the loop
  Timeline* timeline = nullptr;           // outlives the loop
  LiveWatch* live = nullptr;              // null, or outlives the loop
};

// Public methods: any thread. Everything else: the engine thread.
class EngineLoop {
 public:
  // All outlive the loop. device: the workers'. costs: learn from every iteration; may be null.
  EngineLoop(const EngineLoopOptions& options, Device* device, Strategy* strategy, KvBooks* kv,
             WorkerGroup* workers, CorrectedCosts* costs);
  // Cancels what is in flight and joins the thread. After a stall blocks that CPU attention may still write
  // to stay taken.
  ~EngineLoop();

  // As Engine has them.
  Result<RequestId> Submit(RequestSpec spec, OutputCallback callback);
  Result<RequestId> SubmitBegun(RequestSpec spec, int64_t num_made_tokens, OutputCallback callback);
  void Cancel(RequestId id) { inbox_.Cancel(id); }
  void ForgetPrefixes() { inbox_.ForgetPrefixes(); }
  void Drain() { inbox_.Drain(); }
  void CancelAll() { inbox_.CancelAll(); }
  EngineStats Stats() const { return inbox_.Stats(); }
  const ScheduleLimits& limits() const { return options_.limits; }

 private:
  Status Validate(const RequestSpec& spec) const;
  std::unique_ptr<Request> MakeRequest(RequestSpec spec, OutputCallback callback) const;

  void ThreadMain();
  void TakeNews(Inbox::News* news);
  bool has_work() const { return !books_.empty() || !running_.empty(); }
  void RunIteration();
  // While none runs; false if none was started.
  bool StartNext();
  // Enqueues the iteration after the one that runs, if it may be and before that one ends.
  void RunAhead();
  bool MayStartAhead() const;
  // Waits for the end of the oldest that was started, and takes its results.
  void FinishOldest();
  // Nothing can be planned as long as the cpu tier is out of use.
  void WaitForCpuTier();
  // The plan made ahead, if it still holds, else a new one. is_checked: it is known to keep the rules.
  IterationPlan NextPlan(bool* is_checked);
  // Plans the iteration after the one that runs.
  void PlanAhead(const IterationPlan& running);
  void CountSchedule(std::chrono::steady_clock::time_point start);
  // False if nothing was started: CPU attention turned out to have stalled, or memory for a cohort is short.
  bool StartPlan(IterationPlan plan, bool is_checked, std::chrono::steady_clock::time_point now);
  void CountPreemptions(const IterationPlan& plan);
  // Publishes what the last iteration was, then hands out its outputs.
  void Deliver();
  // What has become of the prefix cache.
  void PublishKvEvents();
  // Takes an ended request out of the books. A cohort goes on as long as anybody's row is in it.
  void Forget(RequestId id);
  // Publishes what the books have let go of.
  void CountReleased();
  // A cohort in flight loses its token; a plan made ahead is void. After a stall cpu_tier_fails_ is true.
  void DropCohort(CohortId id);
  // Where the cohorts are after an iteration; corrects the plan made ahead.
  void TakeProgress(const IterationPlan& plan, const IterationResult& result);
  // CPU attention did not answer: forgets all cohorts and ends every request whose KV lies in the cpu tier.
  void FailCpuTier();
  // Takes the cpu tier into use again once CPU attention has come back.
  void RecoverCpuTier();
  // A shard does not answer: ends all requests, and those to come as they come.
  void FailForGood(const Error& error);
  // Ends the requests of the cohorts of a plan that could not start.
  void FailCohorts(const IterationPlan& plan, const Error& error);

  const EngineLoopOptions options_;
  Strategy* strategy_;
  KvBooks* kv_;
  WorkerGroup* workers_;
  const std::optional<BlockHasher> hasher_;  // of EngineLoopOptions::prefix_key

  Inbox inbox_;
  // The engine thread's own.
  RequestBooks books_;
  KvEventCollector kv_events_;  // hears nothing unless somebody is told
  GrammarMasks masks_;
  EngineCounters counters_;
  Results results_;
  RunAheadClock clock_;
  // Started and not finished, oldest first; at most two.
  struct Running {
    IterationPlan plan;
    Clock::time_point start;
  };
  std::deque<Running> running_;
  Clock::time_point last_finish_;
  std::optional<IterationPlan> planned_ahead_;
  StateAhead state_ahead_;         // that it was made for
  bool ahead_is_checked_ = false;  // planned_ahead_ is as it was made, and keeps the rules
  bool ended_since_plan_ = false;  // a request, since planned_ahead_ was made
  std::optional<Error> failure_;   // nothing is started any more
  bool cpu_tier_fails_ = false;    // it stalled when a cohort was to be dropped: FailCpuTier is to come

  std::thread thread_;  // last: starts when everything it uses exists
};

}  // namespace tandem
