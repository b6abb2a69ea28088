#include "execute/logits_stage.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace tandem {
void LogitsWork::AddSample(int32_t row, const Request& request) {
  const SamplingParams& params = request.sampling;
  SampleRow sample;
  sample.temperature = params.temperature;
  sample.top_p = params.top_p;
  sample.top_k = std::max(0, params.top_k);
  sample.min_p = params.min_p;
  sample.presence_penalty = params.presence_penalty;
  sample.frequency_penalty = params.frequency_penalty;
  sample.repetition_penalty = params.repetition_penalty;
  sample.seed = request.seed;
  sample.position = static_cast<uint64_t>(request.num_tokens());
  sample.num_top_logprobs = params.num_top_logprobs;
  sample.prompt_tokens = request.prompt_tokens;
  sample.output_tokens = request.output_tokens;
  sample.logit_bias = params.logit_bias;
  if (static_cast<int64_t>(request.output_tokens.size()) < params.min_tokens)
    sample.banned_tokens = request.end_tokens;
  row_indices.push_back(row);
  sample_rows.push_back(sample);
}

void LogitsWork::AddPromptLogprob(int32_t row, const Request& request, int64_t position) {
  SampleRow sample;
  sample.forced_token = request.TokenAt(position);
  sample.num_top_logprobs = request.sampling.num_prompt_top_logprobs;
  row_indices.push_back(row);
  sample_rows.push_back(sample);
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
  TANDEM_ASSIGN_OR_RETURN(stage->inputs_, IntInputs::Allocate(device, max_rows));
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
}

void LogitsStage::Run(Stream& stream, RowBatch* batch, LogitsWork* work) const {
  const ModelConfig& config = decoder_->config();
  const auto num_rows = static_cast<int64_t>(work->sample_rows.size());
  if (num_rows == 0) return;
  decoder_->FinalNorm(stream, batch);
  // Slices reuse the same memory: the stream runs them one after the other.
  for (int64_t begin = 0; begin < num_rows; begin += slice_rows_) {
    const int64_t count = std::min(slice_rows_, num_rows - begin);
    const MatrixView gathered =
        MatrixView::Dense(gathered_memory_.data(), decoder_->dtype(), count, config.hidden_size);
    const MatrixView logits = LogitsOf(count);
    decoder_->Logits(stream, *batch, work->device_indices + begin, gathered, logits);
    const auto first = static_cast<size_t>(begin);
    for (int64_t i = 0; i < count; ++i) work->sample_rows[first + static_cast<size_t>(i)].logits_row = i;
    ops_->Sample(stream, {.logits = logits,
                          .rows = std::span(work->sample_rows).subspan(first, static_cast<size_t>(count)),
                          .results = std::span(work->results).subspan(first, static_cast<size_t>(count))});
  }
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
  ops_->Sample(stream, {.logits = LogitsOf(num_rows), .rows = work->sample_rows, .results = work->results});
}

}  // namespace tandem
