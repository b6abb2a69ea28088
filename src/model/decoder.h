// A Llama-family decoder cut where attention may happen elsewhere (NEO section 3.1).
//
//   Embed | PreProjection(0)  attention(0)  PostProjection(0) PreProjection(1)  attention(1) ...
//   PostProjection(L-1) | Logits
//
// Pre- and post-projection are the linear operations; attention over the gpu tier is Attend, attention over
// the cpu tier is the executor's business. The families (Llama, Mistral, Qwen2, Qwen3) differ in ModelConfig
// only: biases, q/k norms, RoPE scaling, sliding window.
//
// A shard's decoder has its slices of the weights. Its rows are the same as all other shards': the products
// of the output and down projections and the embedding are summed over the shards, logits are gathered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "collective/collective.h"
#include "device/device.h"
#include "load/model_config.h"
#include "model/decoder_weights.h"
#include "model/row_batch.h"
#include "model/shard_slices.h"
#include "ops/ops.h"

namespace tandem {

// Of a decoder that is a shard.
struct ShardedDecoder {
  Slice vocab;                       // of the embedding and the lm_head
  Collective* collective = nullptr;  // of the compute stream; outlives the decoder
};

// Told where on the compute stream the shards exchange. what: static storage.
class ExchangeObserver {
 public:
  virtual ~ExchangeObserver() = default;
  virtual void BeforeExchange(Stream& stream) = 0;
  virtual void AfterExchange(Stream& stream, std::string_view what) = 0;
};

// Immutable; every method enqueues on a stream and returns. Several sub-batches may be in different layers.
class Decoder {
 public:
  // ops outlives the decoder.
  Decoder(const ModelConfig& config, DType dtype, DecoderWeights weights, Ops* ops);
  // config: ConfigOf the shard, as the weights.
  Decoder(const ModelConfig& config, DType dtype, DecoderWeights weights, Ops* ops,
          const ShardedDecoder& sharded);
  // The same weights without the other shards: for measurements, as its rows lack what those add.
  Decoder Alone() const;
  // The same decoder, of which observer, which outlives it, hears.
  Decoder ObservedBy(ExchangeObserver* observer) const;

  const ModelConfig& config() const { return config_; }
  // What scores are multiplied with.
  float attention_scale() const { return attention_scale_; }
  DType dtype() const { return dtype_; }
  // Of the results that stay between the ops of a layer.
  DType product_dtype() const { return ops_->ProductDType(dtype_); }
  const DecoderWeights& weights() const { return *weights_; }
  // Null unless it is a shard.
  Collective* collective() const { return collective_; }
  Shard shard() const { return collective_ == nullptr ? Shard{} : collective_->shard(); }

  // Has the ops find the fastest way for these numbers of rows, and of rows of logits. Blocks.
  void Tune(Stream& stream, std::span<const int64_t> row_counts,
            std::span<const int64_t> logits_row_counts) const;

  // residual = embedding of token_ids.
  void Embed(Stream& stream, RowBatch* rows) const;

  // qkv of `layer`, normed and rotated; K and V of the rows of appends appended at the rows' slots.
  void PreProjection(Stream& stream, int64_t layer, const std::array<KvRows, 2>& appends,
                     RowBatch* rows) const;

  // attention_out of rows [row_begin, row_begin + num_rows) from their q and kv.
  void Attend(Stream& stream, const AttentionPlan& plan, const KvLayerView& kv, int64_t row_begin,
              int64_t num_rows, const RowBatch& rows) const;

  // Output projection and MLP of `layer`; the result is left in delta.
  void PostProjection(Stream& stream, int64_t layer, RowBatch* rows) const;

  // Between two layers: adds delta to residual, which is all there is to the rows then. hidden is scratch.
  void CompleteResidual(Stream& stream, RowBatch* rows) const;

  // After the last post-projection: hidden = final norm.
  void FinalNorm(Stream& stream, RowBatch* rows) const;

  // logits [rows, vocab] fp32: logits[i, :] = lm_head of hidden[i, :], for all rows.
  void Logits(Stream& stream, const RowBatch& rows, const MatrixView& logits) const;
  // logits[i, :] = lm_head of hidden[row_indices[i], :]. gathered: scratch [logits.rows, hidden] dtype.
  void Logits(Stream& stream, const RowBatch& rows, const int32_t* row_indices, const MatrixView& gathered,
              const MatrixView& logits) const;

 private:
  void Norm(Stream& stream, const Buffer& weight, RowBatch* rows) const;
  // values: of every shard a part.
  void Sum(Stream& stream, const MatrixView& values) const;
  void MultiplyHead(Stream& stream, const MatrixView& hidden, const MatrixView& logits) const;

  ModelConfig config_;
  DType dtype_;
  std::shared_ptr<const DecoderWeights> weights_;
  Ops* ops_;
  float attention_scale_;
  Slice vocab_;  // that the weights have
  Collective* collective_ = nullptr;
  ExchangeObserver* observer_ = nullptr;
};

}  // namespace tandem
