#include "model/decoder.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

Decoder::Decoder(const ModelConfig& config, DType dtype, DecoderWeights weights, Ops* ops,
                 const ShardedDecoder& sharded)
    : config_(config),
      dtype_(dtype),
      weights_(std::make_shared<const DecoderWeights>(std::move(weights))),
      ops_(ops),
      attention_scale_(1.0F / std::sqrt(static_cast<float>(config.head_dim))),
      vocab_(sharded.vocab),
      collective_(sharded.collective) {}

Decoder::Decoder(const ModelConfig& config, DType dtype, DecoderWeights weights, Ops* ops)
    : Decoder(config, dtype, std::move(weights), ops, {.vocab = {0, config.vocab_size}}) {}

Decoder Decoder::Alone() const {
  Decoder alone = *this;
  alone.collective_ = nullptr;
  return alone;
}

Decoder Decoder::ObservedBy(ExchangeObserver* observer) const {
  Decoder observed = *this;
  observed.observer_ = observer;
  return observed;
}

void Decoder::Sum(Stream& stream, const MatrixView& values) const {
  if (collective_ == nullptr) return;
  if (observer_ != nullptr) observer_->BeforeExchange(stream);
  collective_->AllReduce(stream, values);
  if (observer_ != nullptr) observer_->AfterExchange(stream, "sum over the shards");
}

void Decoder::Tune(Stream& stream, std::span<const int64_t> row_counts,
                   std::span<const int64_t> logits_row_counts) const {
  const auto tune = [&](std::unique_ptr<LinearWeight> LayerWeights::*which) {
    std::vector<const LinearWeight*> weights;
    for (const LayerWeights& layer : weights_->layers) weights.push_back((layer.*which).get());
    ops_->TuneLinear(stream, {.weights = weights, .y_dtype = product_dtype(), .row_counts = row_counts});
  };
  tune(&LayerWeights::qkv);
  tune(&LayerWeights::output);
  tune(&LayerWeights::gate_up);
  tune(&LayerWeights::down);
  const LinearWeight* lm_head = weights_->lm_head.get();
  ops_->TuneLinear(stream,
                   {.weights = {&lm_head, 1}, .y_dtype = DType::kF32, .row_counts = logits_row_counts});
}

void Decoder::Embed(Stream& stream, RowBatch* rows) const {
  ops_->Embedding(stream, {.table = weights_->embedding,
                           .ids = rows->token_ids,
                           .out = rows->residual,
                           .quantized = weights_->quantized_embedding,
                           .is_part = vocab_.count < config_.vocab_size,
                           .first_id = static_cast<int32_t>(vocab_.begin)});
  Sum(stream, rows->residual);
  rows->has_delta = false;
}

void Decoder::Norm(Stream& stream, const Buffer& weight, RowBatch* rows) const {
  ops_->AddRmsNorm(stream, {.residual = rows->residual,
                            .delta = rows->has_delta ? rows->delta : MatrixView{},
                            .weight = weight.as<float>(),
                            .eps = static_cast<float>(config_.rms_norm_eps),
                            .out = rows->hidden});
  rows->has_delta = false;
}

void Decoder::PreProjection(Stream& stream, int64_t layer, const std::array<KvRows, 2>& appends,
                            RowBatch* rows) const {
  const LayerWeights& weights = weights_->layers[static_cast<size_t>(layer)];
  Norm(stream, weights.attention_norm, rows);
  ops_->Linear(stream, {.x = rows->hidden, .weight = weights.qkv.get(), .y = rows->qkv});
  ops_->QkvPrepare(stream, {.qkv = rows->qkv,
                            .num_heads = config_.num_heads,
                            .num_kv_heads = config_.num_kv_heads,
                            .head_dim = config_.head_dim,
                            .q_norm_weight = weights.q_norm.as<float>(),
                            .k_norm_weight = weights.k_norm.as<float>(),
                            .norm_eps = static_cast<float>(config_.rms_norm_eps),
                            .rope_table = weights_->rope_table.as<float>(),
                            .positions = rows->positions,
                            .slots = rows->slots,
                            .appends = appends});
}

void Decoder::Attend(Stream& stream, const AttentionPlan& plan, const KvLayerView& kv, int64_t row_begin,
                     int64_t num_rows, const RowBatch& rows) const {
  const MatrixView q = rows.qkv.Rows(row_begin, num_rows).Columns(0, config_.q_width());
  ops_->PagedAttention(stream, {.q = q,
                                .out = rows.attention_out.Rows(row_begin, num_rows),
                                .kv = kv,
                                .num_heads = config_.num_heads,
                                .scale = attention_scale_,
                                .sliding_window = config_.sliding_window,
                                .plan = &plan});
}

void Decoder::PostProjection(Stream& stream, int64_t layer, RowBatch* rows) const {
  const LayerWeights& weights = weights_->layers[static_cast<size_t>(layer)];
  ops_->Linear(stream, {.x = rows->attention_out, .weight = weights.output.get(), .y = rows->delta});
  Sum(stream, rows->delta);
  rows->has_delta = true;
  Norm(stream, weights.mlp_norm, rows);
  ops_->GateUp(
      stream, {.x = rows->hidden, .weight = weights.gate_up.get(), .scratch = rows->gate_up, .y = rows->mlp});
  ops_->Linear(stream, {.x = rows->mlp, .weight = weights.down.get(), .y = rows->delta});
  Sum(stream, rows->delta);
  rows->has_delta = true;
}

void Decoder::CompleteResidual(Stream& stream, RowBatch* rows) const {
  if (rows->has_delta) Norm(stream, weights_->final_norm, rows);
}

void Decoder::FinalNorm(Stream& stream, RowBatch* rows) const {
  Norm(stream, weights_->final_norm, rows);
}

void Decoder::MultiplyHead(Stream& stream, const MatrixView& hidden, const MatrixView& logits) const {
  ops_->Linear(
      stream,
      {.x = hidden, .weight = weights_->lm_head.get(), .y = logits.Columns(vocab_.begin, vocab_.count)});
  if (collective_ == nullptr) return;
  if (observer_ != nullptr) observer_->BeforeExchange(stream);
  collective_->AllGather(stream, logits, vocab_.begin, vocab_.count);
  if (observer_ != nullptr) observer_->AfterExchange(stream, "logits gathered");
}

void Decoder::Logits(Stream& stream, const RowBatch& rows, const MatrixView& logits) const {
  MultiplyHead(stream, rows.hidden, logits);
}

void Decoder::Logits(Stream& stream, const RowBatch& rows, const int32_t* row_indices,
                     const MatrixView& gathered, const MatrixView& logits) const {
  ops_->GatherRows(stream, {.in = rows.hidden, .indices = row_indices, .out = gathered});
  MultiplyHead(stream, gathered, logits);
}

}  // namespace tandem
