// The main sub-batch on its way through the layers: its memory, its attention over the gpu tier and in
// transit, its exchange with CPU attention, its graphs.
//
//   Prepare | PassBoundary(-1) Attend(0) | PassBoundary(0) Attend(1) | ... | PassBoundary(L-1)
//   Prepare | Replay
//
// PassBoundary is the post-projection of one layer and the pre-projection of the next, with the riders of the
// boundary behind the rows; after the last layer logits and sampling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "execute/cpu_rows.h"
#include "execute/decode_graphs.h"
#include "execute/executor_options.h"
#include "execute/int_inputs.h"
#include "execute/kv_transit.h"
#include "execute/main_rows.h"
#include "execute/riding_pass.h"
#include "execute/shared_parts.h"
#include "model/row_batch.h"
#include "ops/attention.h"
#include "plan/iteration_input.h"

namespace tandem {

// Engine thread only. Everything is enqueued on the lanes; rows stay where they are until the iteration has
// run.
class MainPass {
 public:
  // options: complete. riding: null, or outlives it. Errors: kResourceExhausted.
  static Result<std::unique_ptr<MainPass>> Create(const SharedParts& parts, const ExecutorOptions& options,
                                                  RidingPass* riding);
  // Device memory that Create takes.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options);

  // Finds the fastest products for the sizes of batches to come, and records the graphs. Blocks.
  void WarmUp();

  // Lays out the rows of an iteration, riders included, whose pass has begun, and sends off their inputs.
  // Takes block tables out of the input. as_graph: whether nothing but the main sub-batch and riders is in
  // the plan, so that a graph may do. first_transit_block: of the transit's slots, those before it are taken.
  MainRows Prepare(IterationInput* input, bool as_graph, int64_t first_transit_block);
  // Prepares attention for all layers. The device may be at work meanwhile.
  void PlanAttention(const MainRows& rows);

  // All layers of rows that have a graph, without sampling.
  void Replay(const MainRows& rows);
  // Layer by layer; nothing to do without rows.
  void PassBoundary(int64_t boundary, MainRows* rows);
  void Attend(int64_t layer, const MainRows& rows);

  // Of the rows attended in the cpu tier.
  bool OwesOutput() const { return cpu_rows_ != nullptr && cpu_rows_->OwesOutput(); }
  void AbortCpuRows() { cpu_rows_->Abort(); }
  void ResetCpuRows() { cpu_rows_->Reset(); }

  // A cohort in transit takes rows behind those of the iteration. And for measurements while nothing runs.
  const RowBuffers& row_buffers() const { return buffers_; }
  AttentionPlan* attention_plan() { return gpu_plan_.get(); }

 private:
  MainPass(const SharedParts& parts, const ExecutorOptions& options, RidingPass* riding);

  Status CreateCpuSide(const ExecutorOptions& options);
  // For gpu decodes, and riders, few enough for a graph; else empty.
  GraphShape GraphShapeFor(const MainSubBatch& main) const;
  // K and V of a layer go to the gpu tier or to the transit, or with Q to the host.
  void AppendAndProject(int64_t layer, MainRows* rows);
  int64_t RidersAt(int64_t boundary) const { return riding_ != nullptr ? riding_->RowsAt(boundary) : 0; }
  void ExchangeRiders(int64_t boundary, const MainRows& rows);
  IterationStamps& stamps() const { return parts_.lanes->compute().stamps; }

  SharedParts parts_;
  RidingPass* riding_;  // null: none rides
  int64_t max_rows_ = 0;
  RowBuffers buffers_;
  IntInputs inputs_;
  std::unique_ptr<AttentionPlan> gpu_plan_;
  std::vector<GraphShape> graph_shapes_;
  std::unique_ptr<DecodeGraphs> graphs_;
  // Null without a cpu tier.
  std::unique_ptr<KvTransit> transit_;
  std::unique_ptr<AttentionPlan> transit_plan_;
  std::unique_ptr<CpuTierRows> cpu_rows_;
};

}  // namespace tandem
