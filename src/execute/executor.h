// The executor obeys an iteration plan: it walks the layers, lets cohorts visit, moves KV, samples. It
// decides nothing.
//
// One pass of the main sub-batch, with a cohort that visits every layer (NEO Figure 5):
//
//   compute stream   embed,pre0(main) embed,pre0(cohort) ga0(main) | post0,pre1(main) [O0] post0,pre1(cohort)
//   ga1(main) | ... cpu attention                                 [QKV0] ca0(cohort) [QKV1] ca1(cohort)
//
// [..] are waits on events and flags between the streams and the tasks of CpuAttention (execute/cpu_rows.h);
// cohorts that ride instead join the rows of main, and are not waited for (execute/riding.h); KV moves beside
// it on a copy stream (execute/tier_moves.h, execute/kv_transit.h). The host thread enqueues the whole
// iteration, tasks included, in Start, is free for other work, and waits once, in Finish.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/timeline.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/cohort.h"
#include "execute/cpu_rows.h"
#include "execute/decode_graphs.h"
#include "execute/int_inputs.h"
#include "execute/iteration_stamps.h"
#include "execute/kv_transit.h"
#include "execute/logits_stage.h"
#include "execute/main_rows.h"
#include "execute/riding.h"
#include "execute/tier_moves.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "ops/ops.h"
#include "plan/block_move.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

// Where a cohort of the plan is after the iteration.
struct CohortProgress {
  CohortId cohort = 0;
  int64_t cursor = kEntry;  // layer of its next visit; kEntry: its token is done, it is forgotten
  int64_t num_visits = 0;   // made; of a riding cohort 0 if its attention was not done in time
};

struct IterationResult {
  // When the compute stream began and ended, in nanoseconds of the device's own clock.
  int64_t device_begin_ns = 0;
  int64_t device_end_ns = 0;
  bool as_graph = false;  // replayed, not enqueued op by op
  // What CPU attention did for it (and for cohorts of other iterations meanwhile).
  CpuAttentionStats cpu_attention;
  // CPU attention did not end: results of the sequences concerned have failed, and no plan may use the cpu
  // tier before CpuTierUsable.
  bool stalled = false;
  // Main sub-batch (prefills to the gpu tier, gpu decodes, prefills to the cpu tier, cpu decodes), then
  // cohorts that finished their token, or after a stall all that were in flight.
  std::vector<SequenceResult> sequences;
  // Of the plan's cohorts, in their order. After a stall all cohorts are forgotten, those of other plans too.
  std::vector<CohortProgress> cohorts;
};

struct ExecutorOptions {
  int64_t max_rows = 0;  // of the main sub-batch
  // The rest is used if there is a cpu tier.
  CpuAttentionOptions cpu_attention;
  // Cpu decodes of the main sub-batch; and rows of all cohorts of an iteration together that do not ride. 0:
  // max_rows.
  int64_t max_cpu_rows = 0;
  int64_t max_rider_rows = 0;      // that ride at one boundary; 0: cohorts cannot ride
  int64_t max_flight_rows = 0;     // of all cohorts in flight together; 0: max_cpu_rows
  int64_t max_transit_tokens = 0;  // contexts of an iteration's prefills to the cpu tier
  // Without any progress for so long CPU attention counts as stalled.
  std::chrono::milliseconds stall_timeout{10'000};
  // Batch sizes for which iterations that only decode are recorded as graphs; empty: all are enqueued op by
  // op.
  std::vector<int64_t> graph_batch_sizes;
  // For each of those sizes also graphs with so many rows for riders at every boundary.
  std::vector<int64_t> graph_rider_rows;
  int64_t logits_slice_rows = 128;  // rows of logits in memory at once; at least the largest graph's
  Timeline* timeline = nullptr;     // outlives the executor
};

// Engine thread only.
class Executor {
 public:
  // All arguments outlive the executor. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Executor>> Create(Device* device, Ops* ops, const Decoder* decoder,
                                                  const KvBooks* books, KvMemory* memory,
                                                  const ExecutorOptions& options);
  ~Executor();

  // Forgets a cohort in flight and the token that it is at (the plan drops it, or one of its requests was
  // cancelled), after its running attention has ended. Its rows may then enter again with another cohort:
  // what they appended is computed anew. Between Finish and BeginMoves or Start; unknown ids are ignored.
  // False if CPU attention has stalled instead: all cohorts are forgotten then, the sequences of all of them
  // have failed, and no plan may use the cpu tier before CpuTierUsable.
  bool DropCohort(CohortId id);

  // Starts the moves of a plan, which the books name already: the copies run beside the iteration started
  // next, each layer's before that layer. moves: as ApplyMoves returns them.
  void BeginMoves(const std::vector<BlockMove>& moves);

  // Finds the fastest products for the sizes of batches to come, and records the graphs. Blocks for some
  // seconds on a GPU that it has not seen before. Without it everything works as well, more slowly.
  void WarmUp();

  // Enqueues a valid plan whose moves have begun. The blocks of all rows are reserved already, dropped
  // cohorts dropped, preempted sequences released. plan, and the requests that find_request names, stay
  // unchanged until Finish. Errors: kResourceExhausted, before anything ran; then there is nothing to finish.
  Status Start(const IterationPlan& plan, const FindRequest& find_request);
  // Blocks until the results of the plan started last are there. Cohorts that do not finish stay in flight.
  IterationResult Finish();
  // Start and Finish.
  Result<IterationResult> Run(const IterationPlan& plan, const FindRequest& find_request);

  // Device memory that Create takes, without what the ops take for themselves. transit: the form of the gpu
  // tier, or null without a cpu tier.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options, const KvShape* transit);

  // False after a stall until CPU attention has ended what it was at. Until then it may write to the blocks
  // of the sequences that failed.
  bool CpuTierUsable();

  // For measurements while nothing runs. cpu_attention: null without a cpu tier.
  CpuAttention* cpu_attention() { return cpu_attention_.get(); }
  Stream& compute_stream() { return *compute_stream_; }
  Stream& copy_stream() { return *copy_stream_; }
  const RowBuffers& row_buffers() const { return main_buffers_; }
  AttentionPlan* attention_plan() { return gpu_plan_.get(); }
  LogitsStage& logits_stage() { return *logits_stage_; }

 private:
  struct Running;

  Executor(Device* device, Ops* ops, const Decoder* decoder, const KvBooks* books, KvMemory* memory);

  Status CreateCpuSide(const ExecutorOptions& options);
  void CreateGraphs(const ExecutorOptions& options);
  AttentionCapacity CapacityFor(int64_t max_rows, int64_t max_blocks) const;
  Status EnterCohorts(const IterationPlan& plan, const FindRequest& find_request);
  void PrepareRiders(const IterationPlan& plan);
  void PrepareVisits(const IterationPlan& plan, const FindRequest& find_request);
  // For a plan of only decodes of the gpu tier, and riders, few enough for a graph; else empty.
  GraphShape GraphShapeFor(const IterationPlan& plan) const;
  void PrepareMain(const IterationPlan& plan, const FindRequest& find_request);
  void BeginStamps();
  void PlanMainAttention();
  void WalkLayers(const IterationPlan& plan, const FindRequest& find_request);
  int64_t RidersAt(int64_t boundary) const;
  void PassBoundary(int64_t boundary);
  void ExchangeRiders(int64_t boundary);
  void AppendAndProject(int64_t layer);
  void AttendMain(int64_t layer);
  void VisitCohort(const Visit& visit, Cohort* cohort, LogitsWork* work);
  // How often something that may stall is looked at, at most.
  std::chrono::milliseconds StallLook() const;
  // False if CPU attention has stalled.
  bool AwaitIteration(const IterationPlan& plan);
  bool AwaitCpuAttention(const std::function<bool()>& done);
  // Whether CPU attention, which nobody on the device waits for, has stalled.
  bool CohortsStalled(std::chrono::nanoseconds iteration);
  void AbortCpuRows(bool main);
  void CollectRiders();
  void CollectCohorts(IterationResult* result);
  // Of all in flight, the failed results of their rows.
  std::vector<SequenceResult> AbandonCohorts();
  void Forget(CohortId id);
  void AddToTimeline();

  Device* device_;
  Ops* ops_;
  const Decoder* decoder_;
  const KvBooks* books_;
  KvMemory* memory_;
  int64_t max_rows_ = 0;
  std::vector<GraphShape> graph_shapes_;
  std::chrono::milliseconds stall_timeout_{0};
  RowBuffers main_buffers_;
  IntInputs main_inputs_;
  std::unique_ptr<AttentionPlan> gpu_plan_;
  std::unique_ptr<LogitsStage> logits_stage_;
  std::unique_ptr<TierMoves> moves_;
  std::unique_ptr<Event> iteration_end_;
  IterationStamps stamps_;
  IterationStamps copy_stamps_;
  IterationStamps out_stamps_;
  IterationStamps in_stamps_;
  IterationStamps rider_stamps_;
  Timeline* timeline_ = nullptr;
  int64_t clock_offset_ns_ = 0;
  std::unique_ptr<DecodeGraphs> graphs_;
  std::unique_ptr<Running> running_;  // between Start and Finish

  // Null or empty without a cpu tier.
  std::unique_ptr<KvTransit> transit_;
  std::unique_ptr<AttentionPlan> transit_plan_;
  std::unique_ptr<CpuTierRows> main_cpu_rows_;
  std::unique_ptr<CohortPool> cohort_pool_;
  RowBuffers cohort_buffers_;       // shared by the cohorts that do not ride, each iteration anew
  std::unique_ptr<Riding> riding_;  // null: no rows for riders
  std::unordered_map<CohortId, std::unique_ptr<Cohort>> cohorts_;
  // Cohorts of a stalled iteration: CPU attention may still be at them.
  std::vector<std::unique_ptr<Cohort>> abandoned_;
  bool stalled_ = false;
  // Of CohortsStalled.
  std::chrono::nanoseconds without_answer_{0};
  int64_t last_num_tasks_ = -1;

  // Last: their threads end before what their work refers to.
  std::unique_ptr<CpuAttention> cpu_attention_;
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> copy_stream_;
  std::unique_ptr<Stream> out_stream_;
  std::unique_ptr<Stream> in_stream_;
};

}  // namespace tandem
