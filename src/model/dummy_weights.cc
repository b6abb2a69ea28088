#include "model/dummy_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/all_cores.h"
#include "base/fnv1a.h"
#include "base/param_error.h"
#include "base/quantized_rows.h"
#include "base/random_values.h"
#include "load/load_progress.h"
#include "model/rope_table.h"
#include "model/shard_slices.h"

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

// Calls load(place in the cut, row of the matrix, number of rows, memory of the thread) for pieces of all
// rows, on all cores.
template <typename Load>
void ForEachPiece(const MatrixCut& cut, const Load& load) {
  constexpr int64_t kPieceRows = 256;
  struct Piece {
    int64_t place = 0;
    Slice rows;
  };
  std::vector<Piece> pieces;
  int64_t place = 0;
  for (const Slice& run : cut.rows) {
    for (int64_t begin = run.begin; begin < run.end(); begin += kPieceRows) {
      const int64_t count = std::min(kPieceRows, run.end() - begin);
      pieces.push_back({.place = place, .rows = {begin, count}});
      place += count;
    }
  }
  ForEachOnAllCores<QuantizedRows>(std::ssize(pieces), [&](int64_t i, QuantizedRows* memory) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    load(piece.place, piece.rows.begin, piece.rows.count, memory);
  });
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
  Result<std::unique_ptr<LinearWeight>> MakeLinear(std::string_view seed_name, const MatrixCut& cut,
                                                   bool has_bias) {
    const int64_t out_features = cut.num_rows();
    if (is_quantized())
      return MakeCodes(seed_name, cut, {out_features, cut.columns.count, options_.dtype}, has_bias);
    return Fill(seed_name, cut, has_bias,
                ops_->CreateLinearWeight(out_features, cut.columns.count, options_.dtype));
  }

  // cut: of gate and up.
  Result<std::unique_ptr<LinearWeight>> MakeGateUp(std::string_view seed_name, const MatrixCut& cut,
                                                   bool has_bias) {
    const int64_t mlp = cut.rows.front().count;
    if (is_quantized())
      return MakeCodes(seed_name, cut, {2 * mlp, cut.columns.count, options_.dtype, true}, has_bias);
    return Fill(seed_name, cut, has_bias, ops_->CreateGateUpWeight(mlp, cut.columns.count, options_.dtype));
  }

  // Embedding and lm_head.
  Status MakeVocabulary(const ModelConfig& config, const Slice& vocab, DecoderWeights* weights) {
    const std::string_view head_name = config.tie_word_embeddings ? "embedding" : "lm_head";
    const MatrixCut cut = {
        .rows = {vocab}, .columns = {0, config.hidden_size}, .num_columns = config.hidden_size};
    if (!is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(weights->embedding_memory, MakeMatrix("embedding", cut, &weights->embedding));
      TANDEM_ASSIGN_OR_RETURN(weights->lm_head, MakeLinear(head_name, cut, false));
      return {};
    }
    const QuantizedWeightShape shape = {vocab.count, config.hidden_size, options_.dtype};
    TANDEM_ASSIGN_OR_RETURN(auto head, MakeQuantized(head_name, cut, shape, false, true));
    weights->quantized_embedding = head.get();
    weights->lm_head = std::move(head);
    if (config.tie_word_embeddings) return {};
    TANDEM_ASSIGN_OR_RETURN(weights->untied_embedding, MakeQuantized("embedding", cut, shape, false, true));
    weights->quantized_embedding = weights->untied_embedding.get();
    return {};
  }

  Result<std::unique_ptr<QuantizedLinearWeight>> MakeQuantized(std::string_view seed_name,
                                                               const MatrixCut& cut,
                                                               const QuantizedWeightShape& shape,
                                                               bool has_bias, bool is_vocabulary) {
    const WeightFormat whole =
        QuantizedFormat(options_.quantization, cut.num_columns, is_vocabulary, kDummyGroup);
    if (!whole.is_quantized() || !ops_->KeepsQuantized(whole, cut.num_columns, options_.dtype)) {
      return MakeParamError(ErrorCode::kUnsupported, "quantization",
                            "the {} backend does not multiply {} weights with rows of {} at {}",
                            device_->backend(), QuantizationName(options_.quantization), cut.num_columns,
                            DTypeName(options_.dtype));
    }
    const auto format = FormatOfColumns(whole, cut.num_columns, cut.columns.begin, cut.columns.count);
    if (!format || !ops_->KeepsQuantized(*format, cut.columns.count, options_.dtype)) {
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "the {} columns of '{}' ({}) cannot be cut into {} shards", cut.num_columns,
                            seed_name, DescribeWeightFormat(whole), options_.shard.size);
    }
    TANDEM_ASSIGN_OR_RETURN(auto weight, ops_->CreateQuantizedWeight(shape, *format));
    const uint64_t seed = TensorSeed(options_.seed, seed_name);
    if (options_.shard.is_whole()) {
      weight->FillRandom({seed, kWeightBound});
    } else {
      QuantizedLinearWeight* target = weight.get();
      ForEachPiece(cut, [&](int64_t place, int64_t row, int64_t count, QuantizedRows* rows) {
        HashedRows(seed, kWeightBound, row, count, cut.num_columns, whole, rows);
        target->LoadQuantizedRows(place, ColumnsOf(*rows, cut.columns.begin, cut.columns.count));
      });
    }
    Made(has_bias, weight.get());
    return weight;
  }

  Result<std::unique_ptr<LinearWeight>> Fill(std::string_view seed_name, const MatrixCut& cut, bool has_bias,
                                             Result<std::unique_ptr<LinearWeight>> created) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, std::move(created));
    weight->FillRandom(ValuesOf(seed_name, cut));
    Made(has_bias, weight.get());
    return weight;
  }

  Result<Buffer> MakeMatrix(std::string_view seed_name, const MatrixCut& cut, MatrixView* view) {
    const int64_t rows = cut.num_rows();
    const int64_t cols = cut.num_columns;
    const size_t row_bytes = static_cast<size_t>(cols) * DTypeSize(options_.dtype);
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device_->Allocate(static_cast<size_t>(rows) * row_bytes,
                                                             MemoryKind::kDevice, seed_name));
    *view = MatrixView::Dense(buffer.data(), options_.dtype, rows, cols);
    ops_->FillRandom(*stream_, *view, ValuesOf(seed_name, cut));
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
  Result<std::unique_ptr<LinearWeight>> MakeCodes(std::string_view seed_name, const MatrixCut& cut,
                                                  const QuantizedWeightShape& shape, bool has_bias) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, MakeQuantized(seed_name, cut, shape, has_bias, false));
    return std::unique_ptr<LinearWeight>(std::move(weight));
  }
  RandomValues ValuesOf(std::string_view seed_name, const MatrixCut& cut) const {
    return {.seed = TensorSeed(options_.seed, seed_name),
            .bound = kWeightBound,
            .part = options_.shard.is_whole() ? nullptr : &cut};
  }
  void Made(bool has_bias, LinearWeight* weight) {
    if (has_bias) {
      const std::vector<float> zeros(static_cast<size_t>(weight->out_features()));
      weight->LoadBias(0, weight->out_features(), zeros.data());
    }
    size_bytes_ += weight->size_bytes();
    Report(weight->out_features(), weight->in_features());
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

Result<LayerWeights> MakeLayer(const ModelConfig& config, const ShardSlices& slices, int64_t layer_index,
                               WeightMaker* maker) {
  const int64_t q_size = config.q_width();
  const int64_t kv_size = config.kv_width();
  const int64_t mlp_size = config.intermediate_size;
  const Slice hidden = {0, config.hidden_size};
  const Slice q = slices.heads.Of(config.head_dim);
  const Slice kv = slices.kv_heads.Of(config.head_dim);
  const auto behind = [](const Slice& slice, int64_t rows) { return Slice{slice.begin + rows, slice.count}; };
  const MatrixCut qkv = {.rows = {q, behind(kv, q_size), behind(kv, q_size + kv_size)},
                         .columns = hidden,
                         .num_columns = hidden.count};
  const MatrixCut output = {.rows = {hidden}, .columns = q, .num_columns = q_size};
  const MatrixCut gate_up = {
      .rows = {slices.mlp, behind(slices.mlp, mlp_size)}, .columns = hidden, .num_columns = hidden.count};
  const MatrixCut down = {.rows = {hidden}, .columns = slices.mlp, .num_columns = mlp_size};
  const auto name = [layer_index](std::string_view part) {
    return fmt::format("layer {} {}", layer_index, part);
  };
  LayerWeights layer;
  TANDEM_ASSIGN_OR_RETURN(layer.attention_norm, maker->MakeNorm(hidden.count, name("attention norm")));
  if (config.qk_norm) {
    TANDEM_ASSIGN_OR_RETURN(layer.q_norm, maker->MakeNorm(config.head_dim, name("q norm")));
    TANDEM_ASSIGN_OR_RETURN(layer.k_norm, maker->MakeNorm(config.head_dim, name("k norm")));
  }
  TANDEM_ASSIGN_OR_RETURN(layer.qkv, maker->MakeLinear(name("qkv"), qkv, config.qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.output, maker->MakeLinear(name("output"), output, config.output_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm, maker->MakeNorm(hidden.count, name("mlp norm")));
  TANDEM_ASSIGN_OR_RETURN(layer.gate_up, maker->MakeGateUp(name("gate_up"), gate_up, config.mlp_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.down, maker->MakeLinear(name("down"), down, config.mlp_bias));
  return layer;
}

}  // namespace

Result<DecoderWeights> MakeDummyWeights(const ModelConfig& config, Device* device, Ops* ops,
                                        const DummyWeightOptions& options) {
  WeightMaker maker(device, ops, options, NumElements(ConfigOf(config, options.shard)));
  const ShardSlices slices = SlicesOf(config, options.shard);
  DecoderWeights weights;
  TANDEM_RETURN_IF_ERROR(maker.MakeVocabulary(config, slices.vocab, &weights));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, MakeLayer(config, slices, i, &maker));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, maker.MakeNorm(config.hidden_size, "final norm"));
  TANDEM_ASSIGN_OR_RETURN(weights.rope_table,
                          maker.Upload(BuildRopeTable(config, options.max_model_len), "RoPE table"));
  weights.size_bytes = maker.size_bytes();
  return weights;
}

}  // namespace tandem
