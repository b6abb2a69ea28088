// The executor obeys an iteration plan: it walks the layers, lets cohorts visit, moves KV, samples. It
// decides nothing.
//
// One pass of the main sub-batch, with a cohort that visits every layer (NEO Figure 5):
//
//   compute stream   embed,pre0(main) embed,pre0(cohort) ga0(main) | post0,pre1(main) [O0] post0,pre1(cohort)
//   ga1(main) | ... cpu attention                                 [QKV0] ca0(cohort) [QKV1] ca1(cohort)
//
// [..] are waits on flags between the compute stream and the tasks of CpuAttention; the host thread enqueues
// the whole iteration, tasks included, in Start, is free for other work, and waits once, in Finish.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/sampled_token.h"
#include "base/timeline.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/cohort.h"
#include "execute/decode_graphs.h"
#include "execute/int_inputs.h"
#include "execute/iteration_stamps.h"
#include "execute/logits_stage.h"
#include "kv/tiered_cache.h"
#include "model/decoder.h"
#include "ops/ops.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

struct SequenceResult {
  SequenceId sequence = 0;
  int64_t num_computed = 0;  // tokens in the cache after the iteration
  std::optional<SampledToken> token;
  // Of prompt tokens [request.num_reported_prompt_logprobs + 1, ...), as far as this chunk reached.
  std::vector<SampledToken> prompt_logprobs;
};

struct IterationResult {
  // When the compute stream began and ended, in nanoseconds of the device's own clock.
  int64_t device_begin_ns = 0;
  int64_t device_end_ns = 0;
  // Main sub-batch in plan order (prefills, gpu decodes, cpu decodes), then cohorts that finished their
  // token.
  std::vector<SequenceResult> sequences;
};

struct ExecutorOptions {
  int64_t max_rows = 0;               // of the main sub-batch
  CpuAttentionOptions cpu_attention;  // used if the cache has a cpu tier
  // Batch sizes for which iterations that only decode are recorded as graphs; empty: all are enqueued op by
  // op.
  std::vector<int64_t> graph_batch_sizes;
  int64_t logits_slice_rows = 128;  // rows of logits in memory at once; at least the largest graph's
  Timeline* timeline = nullptr;     // outlives the executor
};

// Engine thread only.
class Executor {
 public:
  using FindRequest = std::function<const Request&(SequenceId)>;

  // All arguments outlive the executor. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Executor>> Create(Device* device, Ops* ops, const Decoder* decoder,
                                                  TieredCache* cache, const ExecutorOptions& options);
  ~Executor();

  // Starts the moves of a plan: the block tables name the new tier at once, the copies run before anything
  // that Run enqueues. CHECKs that the other tier has room: the plan promised it.
  void BeginMoves(const std::vector<Move>& moves);

  // Finds the fastest products for the sizes of batches to come, and records the graphs. Blocks for some
  // seconds on a GPU that it has not seen before. Without it everything works as well, more slowly.
  void WarmUp();

  // Enqueues a valid plan whose moves have begun. The blocks of all rows are reserved already, preempted
  // sequences released. plan, and the requests that find_request names, stay unchanged until Finish. Errors:
  // kResourceExhausted, before anything ran; then there is nothing to finish.
  Status Start(const IterationPlan& plan, const FindRequest& find_request);
  // Blocks until the results of the plan started last are there. Cohorts that do not finish stay in flight.
  IterationResult Finish();
  // Start and Finish.
  Result<IterationResult> Run(const IterationPlan& plan, const FindRequest& find_request);

  // Device memory that Create takes, without what the ops take for themselves.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options);

  // Forgets a cohort in flight (one of its requests was cancelled) after its running attention has ended. Its
  // rows may then enter again with another cohort: what they appended is computed anew. Unknown ids are
  // ignored.
  void DropCohort(CohortId id);

 private:
  struct Running;
  struct MainState;

  Executor(Device* device, Ops* ops, const Decoder* decoder, TieredCache* cache);

  Status EnterCohorts(const IterationPlan& plan, const FindRequest& find_request);
  void PrepareMain(const MainSubBatch& main, const FindRequest& find_request, MainState* state);
  // Whether a plan is only decodes of the gpu tier, few enough for a graph.
  int64_t GraphSizeFor(const IterationPlan& plan) const;
  void WalkLayers(const IterationPlan& plan, const FindRequest& find_request);
  void PassBoundary(int64_t boundary, MainState* main);
  void AttendMain(int64_t layer, MainState* main);
  void VisitCohort(const Visit& visit, Cohort* cohort, LogitsWork* work);
  // Blocks of the tokens up to the row's.
  std::vector<int32_t> BlocksOf(const DecodeRow& row) const;
  AttentionSequence GpuSequence(const DecodeRow& row, int64_t row_index) const;
  std::unique_ptr<DecodePlan> PlanCpuDecodes(const std::vector<DecodeRow>& rows) const;
  // Attention of rows [row_begin, + the plan's) over the cpu tier once ready has the value; sets done to it.
  void SubmitCpuAttention(int64_t layer, DecodePlan* plan, const RowBatch& rows, int64_t row_begin,
                          Flag* ready, Flag* done, uint32_t value);

  Device* device_;
  Ops* ops_;
  const Decoder* decoder_;
  TieredCache* cache_;
  std::vector<int64_t> graph_batch_sizes_;  // ascending
  RowBuffers main_buffers_;
  IntInputs main_inputs_;
  std::unique_ptr<AttentionPlan> gpu_plan_;
  std::unique_ptr<LogitsStage> logits_stage_;
  std::unique_ptr<Flag> main_ready_;
  std::unique_ptr<Flag> main_done_;
  uint32_t main_sequence_ = 0;
  std::unordered_map<CohortId, std::unique_ptr<Cohort>> cohorts_;
  std::unique_ptr<Event> moved_;
  IterationStamps stamps_;
  Timeline* timeline_ = nullptr;
  int64_t clock_offset_ns_ = 0;
  std::unique_ptr<DecodeGraphs> graphs_;
  std::unique_ptr<Running> running_;  // between Start and Finish
  // Last: their threads end before what their work refers to.
  std::unique_ptr<CpuAttention> cpu_attention_;  // null without a cpu tier
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> copy_stream_;
};

}  // namespace tandem
