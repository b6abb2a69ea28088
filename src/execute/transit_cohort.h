// A cohort in transit: chunks of prompts that live in the cpu tier, a few layers an iteration.
//
//   iteration        i                            i + 1
//   compute stream   main ... | layer 3 | main ... | layer 4 |   main ... | layer 5 | main ...
//   copy stream      in 4 .............. out 3, in 5 out 4 |     in 6 ........... out 5
//
// Between iterations it is its residual and the blocks of the transit's slots, where the layer of its next
// visit may be on its way already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "execute/executor_options.h"
#include "execute/int_inputs.h"
#include "execute/iteration_result.h"
#include "execute/kv_transit.h"
#include "execute/logits_stage.h"
#include "execute/main_rows.h"
#include "execute/shared_parts.h"
#include "model/row_batch.h"
#include "plan/iteration_input.h"

namespace tandem {

// The only one in flight, or none. Engine thread only.
class TransitCohort {
 public:
  // options: complete. Errors: kResourceExhausted.
  static Result<std::unique_ptr<TransitCohort>> Create(const SharedParts& parts,
                                                       const ExecutorOptions& options);
  // Device memory that Create takes.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options);

  bool in_flight() const { return !rows().empty(); }
  CohortId id() const { return id_; }
  const std::vector<RowSpan>& rows() const { return entered_.plan.main.spans; }
  int64_t cursor() const { return cursor_; }
  // Of the transit's slots, from the first on, that it has while it is in flight.
  int64_t num_blocks() const { return in_flight() ? transit_.end_block() : 0; }

  // None is in flight. inputs: of the step's rows. Sends their inputs off.
  void Enter(const CohortStep& step, const std::vector<SpanInput>& inputs);
  // For an iteration in which it makes visits. Its activations are rows [row_begin, ...) of buffers. inputs:
  // of its rows, if they end with the last visit; else empty. logits: of those that give logits then.
  void Prepare(const CohortStep& step, const std::vector<SpanInput>& inputs, const RowBuffers& buffers,
               int64_t row_begin, LogitsWork* logits);
  // Enqueues a visit; logits: that Prepare made. is_last: of this iteration.
  void MakeVisit(const Visit& visit, bool is_last, LogitsWork* logits);
  // It has ended: appends results of its rows. inputs, logits: as Prepare had them.
  void Collect(const std::vector<SpanInput>& inputs, LogitsWork* logits,
               std::vector<SequenceResult>* results) const;
  // None is in flight any more. What it has enqueued has run.
  void Forget();

 private:
  explicit TransitCohort(const SharedParts& parts)
      : parts_(parts), transit_(parts.device, parts.ops, parts.kv, parts.transit_slots) {}

  void PassLayer(int64_t layer);

  SharedParts parts_;
  Buffer residual_memory_;
  IntInputs inputs_;  // token ids, positions, slots
  KvTransit transit_;
  std::unique_ptr<AttentionPlan> plan_;

  CohortId id_ = 0;
  int64_t cursor_ = kEntry;
  IterationInput entered_;  // its rows as if they were those of a main sub-batch
  MainRows layout_;         // of them
  int32_t* token_ids_ = nullptr;
  int32_t* positions_ = nullptr;
  int32_t* slots_ = nullptr;
  std::optional<RowBatch> batch_;  // of the iteration
};

}  // namespace tandem
