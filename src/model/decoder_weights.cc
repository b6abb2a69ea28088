#include "model/decoder_weights.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/load_progress.h"
#include "model/rope_table.h"

namespace tandem {
namespace {

// Rows of a tensor read by one task: enough to amortize its start, few enough to spread over threads.
constexpr int64_t kTaskBytes = int64_t{4} << 20;

// Collects what has to be read, then reads it with several threads.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, Device* device, Ops* ops, const WeightLoadOptions& options)
      : checkpoint_(checkpoint),
        device_(device),
        ops_(ops),
        options_(options),
        copy_stream_(device->CreateStream(StreamKind::kCopy, "weights")) {}

  // fp32 vector into device memory; small, read at once.
  Result<Buffer> ReadVector(const std::string& name) {
    const TensorInfo* info = checkpoint_.Find(name);
    if (info == nullptr) return MakeError(ErrorCode::kNotFound, "{}: no tensor {}", checkpoint_.path(), name);
    std::vector<float> values(static_cast<size_t>(info->rows * info->cols));
    TANDEM_RETURN_IF_ERROR(checkpoint_.ReadRows(name, 0, info->rows, DType::kF32, values.data()));
    return Upload(values, name);
  }

  Result<Buffer> Upload(const std::vector<float>& values, const std::string& what) {
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer,
                            device_->Allocate(values.size() * sizeof(float), MemoryKind::kDevice, what));
    size_bytes_ += buffer.size_bytes();
    copy_stream_->Copy(buffer.data(), values.data(), buffer.size_bytes());
    copy_stream_->Synchronize();
    return buffer;
  }

  // One weight made of the rows of several tensors, in order. Its rows are read by Run.
  Result<std::unique_ptr<LinearWeight>> PlanLinear(const std::vector<std::string>& prefixes,
                                                   int64_t in_features, bool has_bias) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t out_features, RowsOf(prefixes));
    return Plan(prefixes, has_bias, ops_->CreateLinearWeight(out_features, in_features, options_.dtype));
  }

  // The same of a gate-up weight.
  Result<std::unique_ptr<LinearWeight>> PlanGateUp(const std::string& gate_prefix,
                                                   const std::string& up_prefix, int64_t in_features,
                                                   bool has_bias) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t out_features, RowsOf({gate_prefix, up_prefix}));
    return Plan({gate_prefix, up_prefix}, has_bias,
                ops_->CreateGateUpWeight(out_features / 2, in_features, options_.dtype));
  }

  Result<Buffer> PlanMatrix(const std::string& name, MatrixView* view) {
    const TensorInfo* info = checkpoint_.Find(name);
    if (info == nullptr) return MakeError(ErrorCode::kNotFound, "{}: no tensor {}", checkpoint_.path(), name);
    const size_t row_bytes = static_cast<size_t>(info->cols) * DTypeSize(options_.dtype);
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device_->Allocate(static_cast<size_t>(info->rows) * row_bytes,
                                                             MemoryKind::kDevice, name));
    size_bytes_ += buffer.size_bytes();
    *view = MatrixView::Dense(buffer.data(), options_.dtype, info->rows, info->cols);
    auto* base = buffer.as<std::byte>();
    AddTasks(name, [this, base, row_bytes](int64_t begin, int64_t count, const void* rows) {
      const std::lock_guard lock(copy_mutex_);
      copy_stream_->Copy(base + static_cast<size_t>(begin) * row_bytes, rows,
                         static_cast<size_t>(count) * row_bytes);
      copy_stream_->Synchronize();
    });
    return buffer;
  }

  Status Run() {
    uint64_t total_bytes = 0;
    for (const Task& task : tasks_) total_bytes += task.stored_bytes;
    std::optional<LoadProgress> progress;
    if (options_.show_progress) progress.emplace("loading " + checkpoint_.path(), total_bytes);

    std::atomic<size_t> next{0};
    std::mutex error_mutex;
    std::optional<Error> first_error;
    size_t staging_bytes = 0;
    for (const Task& task : tasks_)
      staging_bytes = std::max(staging_bytes, task.row_bytes * static_cast<size_t>(task.num_rows));
    const auto work = [&] {
      // Pinned: a device that copies from it does so at full speed.
      auto staging = device_->Allocate(staging_bytes, MemoryKind::kPinned, "loading");
      if (!staging.ok()) {
        const std::lock_guard lock(error_mutex);
        if (!first_error) first_error = staging.error();
        return;
      }
      for (size_t i = next.fetch_add(1); i < tasks_.size(); i = next.fetch_add(1)) {
        const Task& task = tasks_[i];
        const Status status =
            checkpoint_.ReadRows(task.name, task.row_begin, task.num_rows, options_.dtype, staging->data());
        if (!status.ok()) {
          const std::lock_guard lock(error_mutex);
          if (!first_error) first_error = status.error();
          next.store(tasks_.size());
          return;
        }
        task.consume(task.row_begin, task.num_rows, staging->data());
        if (progress) progress->Add(task.stored_bytes);
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.num_threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (first_error) return *first_error;
    return {};
  }

  size_t size_bytes() const { return size_bytes_; }

 private:
  using Consume = std::function<void(int64_t row_begin, int64_t num_rows, const void* rows)>;
  struct Task {
    std::string name;
    int64_t row_begin = 0;
    int64_t num_rows = 0;
    size_t row_bytes = 0;
    uint64_t stored_bytes = 0;
    Consume consume;
  };

  Result<int64_t> RowsOf(const std::vector<std::string>& prefixes) {
    int64_t rows = 0;
    for (const std::string& prefix : prefixes) {
      const TensorInfo* info = checkpoint_.Find(prefix + ".weight");
      if (info == nullptr)
        return MakeError(ErrorCode::kNotFound, "{}: no tensor {}.weight", checkpoint_.path(), prefix);
      rows += info->rows;
    }
    return rows;
  }

  // created: with the rows of all prefixes.
  Result<std::unique_ptr<LinearWeight>> Plan(const std::vector<std::string>& prefixes, bool has_bias,
                                             Result<std::unique_ptr<LinearWeight>> created) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, std::move(created));
    size_bytes_ += weight->size_bytes();
    int64_t row = 0;
    for (const std::string& prefix : prefixes) {
      const int64_t num_rows = checkpoint_.Find(prefix + ".weight")->rows;
      LinearWeight* target = weight.get();
      AddTasks(prefix + ".weight", [target, row](int64_t begin, int64_t count, const void* rows) {
        target->LoadRows(row + begin, count, rows);
      });
      if (has_bias) {
        std::vector<float> bias(static_cast<size_t>(num_rows));
        TANDEM_RETURN_IF_ERROR(checkpoint_.ReadRows(prefix + ".bias", 0, 1, DType::kF32, bias.data()));
        weight->LoadBias(row, num_rows, bias.data());
      }
      row += num_rows;
    }
    return weight;
  }

  void AddTasks(const std::string& name, const Consume& consume) {
    const TensorInfo& info = *checkpoint_.Find(name);
    const size_t row_bytes = static_cast<size_t>(info.cols) * DTypeSize(options_.dtype);
    const int64_t rows_per_task = std::max<int64_t>(1, kTaskBytes / static_cast<int64_t>(row_bytes));
    for (int64_t row = 0; row < info.rows; row += rows_per_task) {
      const int64_t num_rows = std::min(rows_per_task, info.rows - row);
      const uint64_t stored_bytes =
          info.stored_bytes / static_cast<uint64_t>(info.rows) * static_cast<uint64_t>(num_rows);
      tasks_.push_back({name, row, num_rows, row_bytes, stored_bytes, consume});
    }
  }

  const Checkpoint& checkpoint_;
  Device* device_;
  Ops* ops_;
  const WeightLoadOptions options_;
  std::unique_ptr<Stream> copy_stream_;
  std::mutex copy_mutex_;
  std::vector<Task> tasks_;
  size_t size_bytes_ = 0;
};

Result<LayerWeights> PlanLayer(const ModelConfig& config, int64_t layer_index, WeightLoader* loader) {
  const std::string prefix = fmt::format("model.layers.{}.", layer_index);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  LayerWeights layer;
  TANDEM_ASSIGN_OR_RETURN(layer.attention_norm, loader->ReadVector(prefix + "input_layernorm.weight"));
  if (config.qk_norm) {
    TANDEM_ASSIGN_OR_RETURN(layer.q_norm, loader->ReadVector(attention + "q_norm.weight"));
    TANDEM_ASSIGN_OR_RETURN(layer.k_norm, loader->ReadVector(attention + "k_norm.weight"));
  }
  TANDEM_ASSIGN_OR_RETURN(
      layer.qkv, loader->PlanLinear({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                                    config.hidden_size, config.qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(
      layer.output,
      loader->PlanLinear({attention + "o_proj"}, config.num_heads * config.head_dim, config.output_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm, loader->ReadVector(prefix + "post_attention_layernorm.weight"));
  TANDEM_ASSIGN_OR_RETURN(layer.gate_up, loader->PlanGateUp(mlp + "gate_proj", mlp + "up_proj",
                                                            config.hidden_size, config.mlp_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.down,
                          loader->PlanLinear({mlp + "down_proj"}, config.intermediate_size, config.mlp_bias));
  return layer;
}

}  // namespace

Result<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint, Device* device, Ops* ops,
                                          const WeightLoadOptions& options) {
  const ModelConfig& config = checkpoint.config();
  const std::string embedding_prefix = "model.embed_tokens";
  WeightLoader loader(checkpoint, device, ops, options);
  DecoderWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.embedding_memory,
                          loader.PlanMatrix(embedding_prefix + ".weight", &weights.embedding));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, PlanLayer(config, i, &loader));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, loader.ReadVector("model.norm.weight"));
  TANDEM_ASSIGN_OR_RETURN(weights.lm_head,
                          loader.PlanLinear({config.tie_word_embeddings ? embedding_prefix : "lm_head"},
                                            config.hidden_size, false));
  TANDEM_ASSIGN_OR_RETURN(weights.rope_table,
                          loader.Upload(BuildRopeTable(config, options.max_model_len), "RoPE table"));
  TANDEM_RETURN_IF_ERROR(loader.Run());
  weights.size_bytes = loader.size_bytes();
  return weights;
}

}  // namespace tandem
