#include "execute/transit_cohort.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<TransitCohort>> TransitCohort::Create(const SharedParts& parts,
                                                             const ExecutorOptions& options) {
  auto cohort = std::unique_ptr<TransitCohort>(new TransitCohort(parts));
  TANDEM_ASSIGN_OR_RETURN(
      cohort->residual_memory_,
      parts.device->Allocate(BytesFor(*parts.decoder, options), MemoryKind::kDevice,
                             "residuals of chunks in transit", {.flag = "max-num-batched-tokens"}));
  TANDEM_ASSIGN_OR_RETURN(cohort->inputs_, IntInputs::Allocate(parts.device, 3 * options.max_rows));
  TANDEM_ASSIGN_OR_RETURN(cohort->plan_, parts.ops->CreateAttentionPlan(parts.AttentionCapacityFor(
                                             options.max_rows, parts.transit_slots->max_blocks())));
  return cohort;
}

size_t TransitCohort::BytesFor(const Decoder& decoder, const ExecutorOptions& options) {
  return static_cast<size_t>(options.max_rows * decoder.config().hidden_size) * sizeof(float);
}

void TransitCohort::Enter(const CohortStep& step, const std::vector<SpanInput>& inputs) {
  TANDEM_CHECK(!in_flight(), "cohort {} enters while {} is in transit", step.cohort, id_);
  id_ = step.cohort;
  cursor_ = kEntry;
  entered_.plan.main.spans = step.rows;
  entered_.main = inputs;
  transit_.Begin(0);
  layout_ = LayOutMainRows(&entered_, parts_.transit_slots->shape().block_size, &transit_, 0);
  TANDEM_CHECK(layout_.num_transit_rows == layout_.num_rows(), "cohort {}: {} of {} rows are in transit", id_,
               layout_.num_transit_rows, layout_.num_rows());
  inputs_.Clear();
  token_ids_ = inputs_.Add(layout_.token_ids);
  positions_ = inputs_.Add(layout_.positions);
  slots_ = inputs_.Add(layout_.slots);
  inputs_.Upload(parts_.compute_stream());
}

void TransitCohort::Prepare(const CohortStep& step, const std::vector<SpanInput>& inputs,
                            const RowBuffers& buffers, int64_t row_begin, LogitsWork* logits) {
  const int64_t num_rows = layout_.num_rows();
  batch_.emplace(buffers, row_begin, num_rows);
  batch_->residual =
      MatrixView::Dense(residual_memory_.data(), DType::kF32, num_rows, parts_.decoder->config().hidden_size);
  batch_->token_ids = token_ids_;
  batch_->positions = positions_;
  batch_->slots = slots_;
  // That of kEntry is of no layer.
  const int64_t begin_layer = std::max<int64_t>(0, step.visits.front().layer);
  transit_.Start(begin_layer, step.visits.back().layer + 1, parts_.copy_stream());
  parts_.ops->PlanAttention(parts_.compute_stream(), layout_.transit_attention, plan_.get());
  if (inputs.empty()) return;
  int32_t row = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    logits->AddSpan(row, step.rows[i], inputs[i]);
    row += static_cast<int32_t>(step.rows[i].num_tokens);
  }
  parts_.logits_stage->Prepare(logits);
}

void TransitCohort::PassLayer(int64_t layer) {
  Stream& stream = parts_.compute_stream();
  Lane& copy = parts_.lanes->copy();
  transit_.AwaitSlot(layer, stream);
  parts_.lanes->compute().stamps.Detail(stream, "wait for KV in transit", layer);
  const std::array<KvRows, 2> appends = {{
      {.row_begin = 0, .num_rows = batch_->num_rows, .kv = transit_.slots().LayerView(layer)},
  }};
  parts_.decoder->PreProjection(stream, layer, appends, &*batch_);
  transit_.CopyOut(layer, stream, *copy.stream, &copy.stamps);
  parts_.decoder->Attend(stream, *plan_, transit_.slots().LayerView(layer), 0, batch_->num_rows, *batch_);
  transit_.Attended(layer, stream, *copy.stream);
  parts_.decoder->PostProjection(stream, layer, &*batch_);
}

void TransitCohort::MakeVisit(const Visit& visit, bool is_last, LogitsWork* logits) {
  TANDEM_CHECK(visit.layer == cursor_, "visit of layer {}, cursor at {}", visit.layer, cursor_);
  Stream& stream = parts_.compute_stream();
  const StreamRange range(stream, "chunks in transit");
  if (visit.layer == kEntry) {
    parts_.decoder->Embed(stream, &*batch_);
  } else {
    PassLayer(visit.layer);
  }
  cursor_ = visit.layer + 1;
  if (cursor_ == parts_.num_layers()) {
    cursor_ = kEntry;
    parts_.logits_stage->Run(stream, &*batch_, logits);
  } else if (is_last) {
    parts_.decoder->CompleteResidual(stream, &*batch_);
  }
  parts_.lanes->compute().stamps.Detail(stream, "chunks in transit", visit.layer);
}

void TransitCohort::Collect(const std::vector<SpanInput>& inputs, LogitsWork* logits,
                            std::vector<SequenceResult>* results) const {
  auto next = logits->results.begin();
  for (size_t i = 0; i < inputs.size(); ++i)
    results->push_back(TakeResult(rows()[i], inputs[i].given_tokens.size(), &next));
}

void TransitCohort::Forget() {
  entered_ = {};
  layout_ = {};
  batch_.reset();
}

}  // namespace tandem
