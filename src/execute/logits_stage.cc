#include "execute/logits_stage.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

SampleRow GivenRow(const SamplingInput& sampling, int32_t token) {
  SampleRow row;
  row.forced_token = token;
  row.num_top_logprobs = sampling.num_given_top_logprobs;
  return row;
}

// position: of the token that is drawn. num_rows_behind: of the span, behind the row that draws it.
SampleRow DrawnRow(const SamplingInput& sampling, int64_t position, int64_t num_rows_behind) {
  SampleRow row;
  row.temperature = sampling.temperature;
  row.top_p = sampling.top_p;
  row.top_k = std::max(0, sampling.top_k);
  row.min_p = sampling.min_p;
  row.presence_penalty = sampling.presence_penalty;
  row.frequency_penalty = sampling.frequency_penalty;
  row.repetition_penalty = sampling.repetition_penalty;
  row.seed = sampling.seed;
  row.position = static_cast<uint64_t>(position);
  row.num_top_logprobs = sampling.num_top_logprobs;
  row.prompt_tokens = sampling.prompt_tokens;
  const auto num_output = static_cast<int64_t>(sampling.output_tokens.size());
  row.output_tokens = std::span(sampling.output_tokens)
                          .first(static_cast<size_t>(std::max<int64_t>(0, num_output - num_rows_behind)));
  row.logit_bias = sampling.logit_bias;
  row.banned_tokens = sampling.banned_tokens;
  row.mask_is_coming = !sampling.coming_mask.empty();
  row.allowed_tokens = row.mask_is_coming ? sampling.coming_mask : std::span(sampling.allowed_tokens);
  return row;
}

}  // namespace

void LogitsWork::AddSpan(int32_t first_row, const RowSpan& span, const SpanInput& input) {
  const auto num_given = static_cast<int64_t>(input.given_tokens.size());
  TANDEM_CHECK(input.sampling.has_value() == (span.num_sampled() > 0) && num_given <= span.num_sampled(),
               "sequence {}: {} rows give logits, {} tokens behind them are given, and sampling is {}",
               span.sequence, span.num_sampled(), num_given, input.sampling ? "there" : "absent");
  pooling.AddSpan(first_row, span, input.pooling);
  for (int64_t i = 0; i < span.num_sampled(); ++i) {
    const int64_t offset = span.sampled_from + i;
    row_indices.push_back(first_row + static_cast<int32_t>(offset));
    sample_rows.push_back(
        i < num_given ? GivenRow(*input.sampling, input.given_tokens[static_cast<size_t>(i)])
                      : DrawnRow(*input.sampling, span.start + offset + 1, span.num_tokens - 1 - offset));
  }
}

size_t LogitsStage::BytesFor(const Decoder& decoder, int64_t slice_rows) {
  const ModelConfig& config = decoder.config();
  const size_t row_bytes = static_cast<size_t>(config.hidden_size) * DTypeSize(decoder.dtype()) +
                           static_cast<size_t>(config.vocab_size) * sizeof(float);
  return static_cast<size_t>(slice_rows) * row_bytes;
}

Result<std::unique_ptr<LogitsStage>> LogitsStage::Create(Device* device, const Decoder* decoder, Ops* ops,
                                                         int64_t max_rows, int64_t slice_rows) {
  auto stage = std::unique_ptr<LogitsStage>(new LogitsStage(decoder, ops));
  const ModelConfig& config = decoder->config();
  stage->slice_rows_ = std::min(max_rows, slice_rows);
  const auto rows = static_cast<size_t>(stage->slice_rows_);
  TANDEM_ASSIGN_OR_RETURN(stage->pooling_, PoolingStage::Create(device, *decoder, max_rows));
  TANDEM_ASSIGN_OR_RETURN(stage->inputs_, IntInputs::Allocate(device, max_rows));
  TANDEM_ASSIGN_OR_RETURN(stage->drawn_, device->Allocate(static_cast<size_t>(max_rows) * sizeof(int32_t),
                                                          MemoryKind::kDevice, "drawn tokens"));
  TANDEM_ASSIGN_OR_RETURN(
      stage->gathered_memory_,
      device->Allocate(rows * static_cast<size_t>(config.hidden_size) * DTypeSize(decoder->dtype()),
                       MemoryKind::kDevice, "rows of the lm_head"));
  TANDEM_ASSIGN_OR_RETURN(stage->logits_memory_,
                          device->Allocate(rows * static_cast<size_t>(config.vocab_size) * sizeof(float),
                                           MemoryKind::kDevice, "logits", {.flag = "max-num-seqs"}));
  return stage;
}

MatrixView LogitsStage::LogitsOf(int64_t num_rows) const {
  return MatrixView::Dense(logits_memory_.data(), DType::kF32, num_rows, decoder_->config().vocab_size);
}

void LogitsStage::Prepare(LogitsWork* work) {
  work->device_indices = inputs_.Add(work->row_indices);
  work->results.resize(work->sample_rows.size());
  pooling_.Prepare(&work->pooling);
}

void LogitsStage::Run(Stream& stream, RowBatch* batch, LogitsWork* work) const {
  const ModelConfig& config = decoder_->config();
  const auto num_rows = static_cast<int64_t>(work->sample_rows.size());
  if (num_rows == 0 && work->pooling.rows.empty()) return;
  decoder_->FinalNorm(stream, batch);
  pooling_.Run(stream, batch->hidden, work->pooling);
  // Slices reuse the same memory: the stream runs them one after the other.
  for (int64_t begin = 0; begin < num_rows; begin += slice_rows_) {
    const int64_t count = std::min(slice_rows_, num_rows - begin);
    const MatrixView gathered =
        MatrixView::Dense(gathered_memory_.data(), decoder_->dtype(), count, config.hidden_size);
    const MatrixView logits = LogitsOf(count);
    decoder_->Logits(stream, *batch, work->device_indices + begin, gathered, logits);
    const auto first = static_cast<size_t>(begin);
    for (int64_t i = 0; i < count; ++i) work->sample_rows[first + static_cast<size_t>(i)].logits_row = i;
    Sample(stream, {.logits = logits,
                    .rows = std::span(work->sample_rows).subspan(first, static_cast<size_t>(count)),
                    .results = std::span(work->results).subspan(first, static_cast<size_t>(count)),
                    .drawn = drawn_.as<int32_t>() + begin});
  }
}

void LogitsStage::Sample(Stream& stream, const SampleArgs& args) const {
  Collective* const collective = decoder_->collective();
  if (collective == nullptr || collective->shard().rank == 0) {
    const bool waits = std::any_of(args.rows.begin(), args.rows.end(),
                                   [](const SampleRow& row) { return row.mask_is_coming; });
    if (waits) stream.WaitFlag(*masks_ready_, 1);
    ops_->Sample(stream, args);
  }
  if (collective != nullptr) collective->Broadcast(stream, args.drawn, args.rows.size() * sizeof(int32_t));
}

void LogitsStage::RunProducts(Stream& stream, RowBatch* batch) const {
  TANDEM_CHECK(batch->num_rows <= slice_rows_, "{} rows of logits, room for {}", batch->num_rows,
               slice_rows_);
  decoder_->FinalNorm(stream, batch);
  decoder_->Logits(stream, *batch, LogitsOf(batch->num_rows));
}

void LogitsStage::SampleFrom(Stream& stream, int64_t num_rows, LogitsWork* work) const {
  for (size_t i = 0; i < work->sample_rows.size(); ++i)
    work->sample_rows[i].logits_row = work->row_indices[i];
  work->results.resize(work->sample_rows.size());
  Sample(stream, {.logits = LogitsOf(num_rows),
                  .rows = work->sample_rows,
                  .results = work->results,
                  .drawn = drawn_.as<int32_t>()});
}

}  // namespace tandem
