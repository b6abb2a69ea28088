// The executor obeys an iteration plan: it walks the layers, lets cohorts visit, moves KV, samples. It
// decides nothing, and knows nothing of requests and of the books of the cache: all it needs comes with the
// iteration (plan/iteration_input.h).
//
// One pass of the main sub-batch, with a cohort that visits every layer (NEO Figure 5):
//
//   compute stream   pre 0 M | pre 0 C | ga 0 M | post 0, pre 1 M | [O 0] post 0, pre 1 C | ga 1 M | ...
//   CPU attention              [QKV 0] ca 0 C                             [QKV 1] ca 1 C
//
// M is the main sub-batch, C the cohort, ga and ca attention over the gpu tier and over the cpu tier.
// [..] are waits on events and flags between the streams and the tasks of CpuAttention (execute/cpu_rows.h).
// The host thread enqueues the whole iteration, tasks included, in Start, is free for other work, and waits
// once, in Finish. An iteration that is on the compute stream alone may be enqueued behind another such one
// that runs still (MayRunAhead): between the two the device waits for nobody.
//
// Its parts: the main sub-batch (execute/main_pass.h), cohorts in flight (execute/cohort_flight.h), those
// that ride (execute/riding_pass.h) or are in transit (execute/transit_cohort.h), moves
// (execute/tier_moves.h), the end of it (execute/logits_stage.h), and when CPU attention counts as stalled
// (execute/stall_watch.h).
//
// An executor of a shard does the same with its slices: the exchange with the others is in its decoder, at
// the end (LogitsStage) and where cohorts ride.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/cohort_flight.h"
#include "execute/executor_options.h"
#include "execute/iteration_result.h"
#include "execute/lanes.h"
#include "execute/logits_stage.h"
#include "execute/main_pass.h"
#include "execute/riding_pass.h"
#include "execute/running_iteration.h"
#include "execute/shard_executor.h"
#include "execute/shared_parts.h"
#include "execute/stall_watch.h"
#include "execute/tier_moves.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "ops/ops.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

// For measurements while nothing runs.
struct MeasurementParts {
  Stream* compute = nullptr;
  Stream* copy = nullptr;
  const RowBuffers* rows = nullptr;
  AttentionPlan* plan = nullptr;
  LogitsStage* logits = nullptr;
};

// Engine thread only.
class Executor : public ShardExecutor {
 public:
  // All arguments outlive the executor. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Executor>> Create(Device* device, Ops* ops, const Decoder* decoder,
                                                  const KvMemory* kv, const ExecutorOptions& options);
  ~Executor() override;

  // Forgets a cohort in flight and the token that it is at (the plan drops it, or one of its requests was
  // cancelled), after its running attention has ended. Its rows may then enter again with another cohort:
  // what they appended is computed anew. Between Finish and Start; unknown ids are ignored. False if CPU
  // attention has stalled instead: all cohorts are forgotten then, the sequences of all of them have failed,
  // and no plan may use the cpu tier before CpuTierUsable.
  bool DropCohort(CohortId id) override;

  // Finds the fastest products for the sizes of batches to come, and records the graphs. Blocks for some
  // seconds on a GPU that it has not seen before. Without it everything works as well, more slowly.
  void WarmUp() override;

  // Enqueues a valid plan: first the copies of its moves, which run beside it, each layer's before that
  // layer. Blocks of all rows are reserved already, dropped cohorts dropped. Errors: kResourceExhausted,
  // before anything but the moves has begun: these are made all the same, and there is nothing to finish.
  // While an iteration runs only if MayRunAhead, and an input that IsOnComputeStreamAlone.
  Status Start(IterationInput input);
  // Whether one iteration runs, which is on the compute stream alone, and nobody wants a timeline of it.
  bool MayRunAhead() const;
  // Of gpu rows only, without embeddings and masks that are coming.
  static bool IsOnComputeStreamAlone(const IterationInput& input);
  // Blocks for timeout at most. False if the iteration started last runs still.
  bool AwaitEnd(std::chrono::microseconds timeout) { return running_.back()->end->SynchronizeFor(timeout); }
  // Blocks until the results of the oldest plan that was started are there. Cohorts that do not finish stay
  // in flight.
  IterationResult Finish();

  // Start and Finish in steps, for executors that are shards of one model.
  Status Enter(IterationInput* input) override;
  void Run(IterationInput input) override;
  bool EndsWithin(std::chrono::microseconds time) override;
  StallWatch::Look LookAtOldest() override;
  const StallWatch& stall_watch() const { return cohort_watch_; }
  void AbortOldest() override;
  bool CompleteOldest(bool stalled) override;
  void AbortCohorts() override { AbortCpuRows(false); }
  IterationResult CollectOldest(bool stalled) override;
  void FailCohorts() override;

  // Device memory that Create takes, without what the ops take for themselves. cpu_tier: of what form, or
  // null without one.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options, const KvShape* cpu_tier);
  // Of these the logits'.
  static size_t LogitsBytesFor(const Decoder& decoder, const ExecutorOptions& options);

  // False after a stall until CPU attention has ended what it was at. Until then it may write to the blocks
  // of the sequences that failed.
  bool CpuTierUsable() override;

  // Null without a cpu tier.
  CpuAttention* cpu_attention() { return parts_.cpu_attention; }
  MeasurementParts measurement_parts();

 private:
  Executor(const SharedParts& parts, const ExecutorOptions& options);

  Status CreateParts(const ExecutorOptions& options);
  void BeginMoves(const IterationInput& input);
  // Whether a plan leaves it open that a graph serves it.
  bool MayReplay(const IterationInput& input) const;
  void Replay(RunningIteration* running);
  void WalkLayers(RunningIteration* running);
  // With the device at work meanwhile.
  void PrepareLogits(RunningIteration* running);
  // False if CPU attention stalls that the device waits for in the oldest.
  bool AwaitOldest();
  // Whether CPU attention has stalled that nobody on the device waits for.
  bool CohortsStalled(std::chrono::nanoseconds iteration);
  // Takes the cpu tier out of use. main: rows of the main sub-batch wait too.
  void AbortCpuRows(bool main);
  // Hidden states, once the results of their sequences are there.
  void CollectPooled(const RunningIteration& running, IterationResult* result) const;
  void CollectCohorts(RunningIteration* running, IterationResult* result);
  // Of all in flight, the failed results of their rows.
  std::vector<SequenceResult> AbandonCohorts();

  SharedParts parts_;
  // Of a shard, else null: its exchange is told apart on the compute lane.
  std::unique_ptr<StampedExchange> stamped_exchange_;
  std::unique_ptr<Decoder> stamped_decoder_;
  std::unique_ptr<LogitsStage> logits_stage_;
  std::unique_ptr<TransitSlots> transit_slots_;  // null without a cpu tier
  TierMoves moves_;
  std::array<std::unique_ptr<Event>, 2> ends_;  // of iterations, in turns
  size_t next_end_ = 0;
  StallWatch cohort_watch_;  // over iterations; of what no stream waits for
  bool stalled_ = false;
  std::unique_ptr<RidingPass> riding_;    // null: no rows for riders
  std::unique_ptr<CohortFlight> flight_;  // null without a cpu tier
  std::unique_ptr<MainPass> main_;
  std::deque<std::unique_ptr<RunningIteration>> running_;  // between Start and Finish, oldest first
  // The one before. It goes when the next one is on its way: it is thousands of small vectors, and between
  // two iterations the device waits.
  std::unique_ptr<RunningIteration> ended_;

  // Last: their threads end before what their work refers to.
  std::unique_ptr<CpuAttention> cpu_attention_;
  std::unique_ptr<Lanes> lanes_;
};

}  // namespace tandem
