#include "model/dummy_weights.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv1a.h"
#include "base/param_error.h"
#include "load/load_progress.h"
#include "model/rope_table.h"

namespace tandem {
namespace {

// Uniform in +-0.02 * sqrt(3): a standard deviation of 0.02. Normalized rows of some thousand elements then
// give logits of order 1.
constexpr float kWeightBound = 0.02F * 1.7320508F;

// Every tensor draws from a sequence of its own.
uint64_t TensorSeed(uint64_t seed, std::string_view name) {
  return Fnv1a(name, seed);
}

// Groups as most published checkpoints of 4 bits have them.
constexpr int64_t kDummyGroup = 128;

// All weights of the shape, embedding included.
uint64_t NumElements(const ModelConfig& config) {
  const int64_t q_size = config.q_width();
  const int64_t kv_size = config.kv_width();
  const int64_t layer = config.hidden_size * (2 * q_size + 2 * kv_size + 3 * config.intermediate_size);
  const int64_t elements = config.num_layers * layer + 2 * config.vocab_size * config.hidden_size;
  return static_cast<uint64_t>(elements);
}

class WeightMaker {
 public:
  WeightMaker(Device* device, Ops* ops, const DummyWeightOptions& options, uint64_t total_elements)
      : device_(device),
        ops_(ops),
        options_(options),
        stream_(device->CreateStream(StreamKind::kCompute, "weights")) {
    if (options.show_progress)
      progress_.emplace("making random weights", total_elements * DTypeSize(options.dtype));
  }

  // seed_name: tensors of one name and shape hold the same values.
  Result<std::unique_ptr<LinearWeight>> MakeLinear(std::string_view seed_name, int64_t out_features,
                                                   int64_t in_features, bool has_bias) {
    if (is_quantized()) return MakeCodes(seed_name, {out_features, in_features, options_.dtype}, has_bias);
    return Fill(seed_name, has_bias, ops_->CreateLinearWeight(out_features, in_features, options_.dtype));
  }

  Result<std::unique_ptr<LinearWeight>> MakeGateUp(std::string_view seed_name, int64_t mlp,
                                                   int64_t in_features, bool has_bias) {
    if (is_quantized()) return MakeCodes(seed_name, {2 * mlp, in_features, options_.dtype, true}, has_bias);
    return Fill(seed_name, has_bias, ops_->CreateGateUpWeight(mlp, in_features, options_.dtype));
  }

  // Embedding and lm_head.
  Status MakeVocabulary(const ModelConfig& config, DecoderWeights* weights) {
    const std::string_view head_name = config.tie_word_embeddings ? "embedding" : "lm_head";
    if (!is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(weights->embedding_memory, MakeMatrix("embedding", config.vocab_size,
                                                                    config.hidden_size, &weights->embedding));
      TANDEM_ASSIGN_OR_RETURN(weights->lm_head,
                              MakeLinear(head_name, config.vocab_size, config.hidden_size, false));
      return {};
    }
    const QuantizedWeightShape shape = {config.vocab_size, config.hidden_size, options_.dtype};
    TANDEM_ASSIGN_OR_RETURN(auto head, MakeQuantized(head_name, shape, false, true));
    weights->quantized_embedding = head.get();
    weights->lm_head = std::move(head);
    if (config.tie_word_embeddings) return {};
    TANDEM_ASSIGN_OR_RETURN(weights->untied_embedding, MakeQuantized("embedding", shape, false, true));
    weights->quantized_embedding = weights->untied_embedding.get();
    return {};
  }

  Result<std::unique_ptr<QuantizedLinearWeight>> MakeQuantized(std::string_view seed_name,
                                                               const QuantizedWeightShape& shape,
                                                               bool has_bias, bool is_vocabulary) {
    const WeightFormat format =
        QuantizedFormat(options_.quantization, shape.in_features, is_vocabulary, kDummyGroup);
    if (!format.is_quantized() || !ops_->KeepsQuantized(format, shape.in_features, options_.dtype)) {
      return MakeParamError(ErrorCode::kUnsupported, "quantization",
                            "the {} backend does not multiply {} weights with rows of {} at {}",
                            device_->backend(), QuantizationName(options_.quantization), shape.in_features,
                            DTypeName(options_.dtype));
    }
    return Fill(seed_name, has_bias, ops_->CreateQuantizedWeight(shape, format));
  }

  template <typename Weight>
  Result<std::unique_ptr<Weight>> Fill(std::string_view seed_name, bool has_bias,
                                       Result<std::unique_ptr<Weight>> created) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, std::move(created));
    weight->FillRandom(TensorSeed(options_.seed, seed_name), kWeightBound);
    if (has_bias) {
      const std::vector<float> zeros(static_cast<size_t>(weight->out_features()));
      weight->LoadBias(0, weight->out_features(), zeros.data());
    }
    size_bytes_ += weight->size_bytes();
    Report(weight->out_features(), weight->in_features());
    return weight;
  }

  Result<Buffer> MakeMatrix(std::string_view seed_name, int64_t rows, int64_t cols, MatrixView* view) {
    const size_t bytes = static_cast<size_t>(rows * cols) * DTypeSize(options_.dtype);
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device_->Allocate(bytes, MemoryKind::kDevice, seed_name));
    *view = MatrixView::Dense(buffer.data(), options_.dtype, rows, cols);
    ops_->FillRandom(*stream_, *view, TensorSeed(options_.seed, seed_name), kWeightBound);
    stream_->Synchronize();
    size_bytes_ += buffer.size_bytes();
    Report(rows, cols);
    return buffer;
  }

  Result<Buffer> MakeNorm(int64_t size, std::string_view what) {
    return Upload(std::vector<float>(static_cast<size_t>(size), 1.0F), what);
  }

  Result<Buffer> Upload(const std::vector<float>& values, std::string_view what) {
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer,
                            device_->Allocate(values.size() * sizeof(float), MemoryKind::kDevice, what));
    stream_->Copy(buffer.data(), values.data(), buffer.size_bytes());
    stream_->Synchronize();
    size_bytes_ += buffer.size_bytes();
    return buffer;
  }

  size_t size_bytes() const { return size_bytes_; }

 private:
  Result<std::unique_ptr<LinearWeight>> MakeCodes(std::string_view seed_name,
                                                  const QuantizedWeightShape& shape, bool has_bias) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, MakeQuantized(seed_name, shape, has_bias, false));
    return std::unique_ptr<LinearWeight>(std::move(weight));
  }
  bool is_quantized() const { return QuantizesFloats(options_.quantization); }
  void Report(int64_t rows, int64_t cols) {
    if (progress_) progress_->Add(static_cast<uint64_t>(rows * cols) * DTypeSize(options_.dtype));
  }

  Device* device_;
  Ops* ops_;
  const DummyWeightOptions options_;
  std::unique_ptr<Stream> stream_;
  std::optional<LoadProgress> progress_;
  size_t size_bytes_ = 0;
};

Result<LayerWeights> MakeLayer(const ModelConfig& config, int64_t layer_index, WeightMaker* maker) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.q_width();
  const int64_t kv_size = config.kv_width();
  const auto name = [layer_index](std::string_view part) {
    return fmt::format("layer {} {}", layer_index, part);
  };
  LayerWeights layer;
  TANDEM_ASSIGN_OR_RETURN(layer.attention_norm, maker->MakeNorm(hidden, name("attention norm")));
  if (config.qk_norm) {
    TANDEM_ASSIGN_OR_RETURN(layer.q_norm, maker->MakeNorm(config.head_dim, name("q norm")));
    TANDEM_ASSIGN_OR_RETURN(layer.k_norm, maker->MakeNorm(config.head_dim, name("k norm")));
  }
  TANDEM_ASSIGN_OR_RETURN(layer.qkv,
                          maker->MakeLinear(name("qkv"), q_size + 2 * kv_size, hidden, config.qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.output,
                          maker->MakeLinear(name("output"), hidden, q_size, config.output_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm, maker->MakeNorm(hidden, name("mlp norm")));
  TANDEM_ASSIGN_OR_RETURN(
      layer.gate_up, maker->MakeGateUp(name("gate_up"), config.intermediate_size, hidden, config.mlp_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.down,
                          maker->MakeLinear(name("down"), hidden, config.intermediate_size, config.mlp_bias));
  return layer;
}

}  // namespace

Result<DecoderWeights> MakeDummyWeights(const ModelConfig& config, Device* device, Ops* ops,
                                        const DummyWeightOptions& options) {
  WeightMaker maker(device, ops, options, NumElements(config));
  DecoderWeights weights;
  TANDEM_RETURN_IF_ERROR(maker.MakeVocabulary(config, &weights));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, MakeLayer(config, i, &maker));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, maker.MakeNorm(config.hidden_size, "final norm"));
  TANDEM_ASSIGN_OR_RETURN(weights.rope_table,
                          maker.Upload(BuildRopeTable(config, options.max_model_len), "RoPE table"));
  weights.size_bytes = maker.size_bytes();
  return weights;
}

}  // namespace tandem
