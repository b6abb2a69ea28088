#include "model/decoder_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/load_progress.h"
#include "model/rope_table.h"
#include "model/weight_formats.h"

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
                                                   int64_t in_features, bool has_bias,
                                                   bool is_gate_up = false) {
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat format, FormatOf(prefixes, false));
    TANDEM_ASSIGN_OR_RETURN(const int64_t out_features, RowsOf(prefixes));
    if (format.is_quantized()) {
      QuantizedWeightShape shape = {out_features, in_features, options_.dtype, is_gate_up};
      // StoredWeightFormat has found that it is one for all of them.
      if (const auto* order = checkpoint_.Find(prefixes.front() + ".weight")->column_order; order != nullptr)
        shape.column_order = *order;
      TANDEM_ASSIGN_OR_RETURN(auto weight, PlanQuantized(prefixes, shape, has_bias, format));
      return std::unique_ptr<LinearWeight>(std::move(weight));
    }
    return PlanFloats(prefixes, has_bias,
                      is_gate_up ? ops_->CreateGateUpWeight(out_features / 2, in_features, options_.dtype)
                                 : ops_->CreateLinearWeight(out_features, in_features, options_.dtype));
  }

  // The embedding, the lm_head, and what the two share.
  Status PlanVocabulary(DecoderWeights* weights) {
    const ModelConfig& config = checkpoint_.config();
    const std::string embedding = "model.embed_tokens";
    const std::string head = config.tie_word_embeddings ? embedding : "lm_head";
    const QuantizedWeightShape shape = {config.vocab_size, config.hidden_size, options_.dtype};
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat head_format, FormatOf({head}, true));
    if (head_format.is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(auto quantized, PlanQuantized({head}, shape, false, head_format));
      if (config.tie_word_embeddings) weights->quantized_embedding = quantized.get();
      weights->lm_head = std::move(quantized);
    } else {
      TANDEM_ASSIGN_OR_RETURN(
          weights->lm_head,
          PlanFloats({head}, false,
                     ops_->CreateLinearWeight(shape.out_features, shape.in_features, shape.dtype)));
    }
    if (weights->quantized_embedding != nullptr) return {};
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat format, FormatOf({embedding}, true));
    if (format.is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(weights->untied_embedding, PlanQuantized({embedding}, shape, false, format));
      weights->quantized_embedding = weights->untied_embedding.get();
      return {};
    }
    TANDEM_ASSIGN_OR_RETURN(weights->embedding_memory,
                            PlanMatrix(embedding + ".weight", &weights->embedding));
    return {};
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
    size_t staging_bytes = 1;
    for (const Task& task : tasks_)
      staging_bytes = std::max(staging_bytes, task.row_bytes * static_cast<size_t>(task.num_rows));
    const auto work = [&] {
      QuantizedRows codes;
      // Pinned: a device that copies from it does so at full speed.
      auto staging = device_->Allocate(staging_bytes, MemoryKind::kPinned, "loading");
      if (!staging.ok()) {
        const std::lock_guard lock(error_mutex);
        if (!first_error) first_error = staging.error();
        return;
      }
      for (size_t i = next.fetch_add(1); i < tasks_.size(); i = next.fetch_add(1)) {
        const Task& task = tasks_[i];
        const Status status = RunTask(task, staging->data(), &codes);
        if (!status.ok()) {
          const std::lock_guard lock(error_mutex);
          if (!first_error) first_error = status.error();
          next.store(tasks_.size());
          return;
        }
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
    size_t row_bytes = 0;  // of staging; 0 for a quantized weight
    uint64_t stored_bytes = 0;
    Consume consume;
    QuantizedLinearWeight* quantized = nullptr;  // instead of consume: gets the rows behind first_row
    int64_t first_row = 0;
  };

  Status RunTask(const Task& task, void* staging, QuantizedRows* codes) const {
    if (task.quantized != nullptr) {
      TANDEM_RETURN_IF_ERROR(checkpoint_.ReadQuantizedRows(task.name, task.row_begin, task.num_rows,
                                                           task.quantized->format(), codes));
      task.quantized->LoadQuantizedRows(task.first_row + task.row_begin, *codes);
      return {};
    }
    TANDEM_RETURN_IF_ERROR(
        checkpoint_.ReadRows(task.name, task.row_begin, task.num_rows, options_.dtype, staging));
    task.consume(task.row_begin, task.num_rows, staging);
    return {};
  }

  Result<WeightFormat> FormatOf(const std::vector<std::string>& prefixes, bool is_vocabulary) const {
    std::vector<std::string> tensors;
    tensors.reserve(prefixes.size());
    for (const std::string& prefix : prefixes) tensors.push_back(prefix + ".weight");
    return StoredWeightFormat(checkpoint_, tensors, is_vocabulary, {options_.quantization, options_.dtype},
                              *ops_);
  }

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
  Result<std::unique_ptr<LinearWeight>> PlanFloats(const std::vector<std::string>& prefixes, bool has_bias,
                                                   Result<std::unique_ptr<LinearWeight>> created) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, std::move(created));
    LinearWeight* target = weight.get();
    TANDEM_RETURN_IF_ERROR(PlanRows(prefixes, has_bias, target, [&](const std::string& tensor, int64_t row) {
      AddTasks(tensor, [target, row](int64_t begin, int64_t count, const void* rows) {
        target->LoadRows(row + begin, count, rows);
      });
    }));
    return weight;
  }

  Result<std::unique_ptr<QuantizedLinearWeight>> PlanQuantized(const std::vector<std::string>& prefixes,
                                                               const QuantizedWeightShape& shape,
                                                               bool has_bias, const WeightFormat& format) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, ops_->CreateQuantizedWeight(shape, format));
    QuantizedLinearWeight* target = weight.get();
    TANDEM_RETURN_IF_ERROR(PlanRows(prefixes, has_bias, target, [&](const std::string& tensor, int64_t row) {
      AddTasks(tensor, {.quantized = target, .first_row = row});
    }));
    return weight;
  }

  // Calls add_tasks(tensor, its first row of the weight) for every prefix, and loads the biases.
  template <typename AddTasksOf>
  Status PlanRows(const std::vector<std::string>& prefixes, bool has_bias, LinearWeight* weight,
                  const AddTasksOf& add_tasks) {
    size_bytes_ += weight->size_bytes();
    int64_t row = 0;
    for (const std::string& prefix : prefixes) {
      const int64_t num_rows = checkpoint_.Find(prefix + ".weight")->rows;
      add_tasks(prefix + ".weight", row);
      if (has_bias) {
        std::vector<float> bias(static_cast<size_t>(num_rows));
        TANDEM_RETURN_IF_ERROR(checkpoint_.ReadRows(prefix + ".bias", 0, 1, DType::kF32, bias.data()));
        weight->LoadBias(row, num_rows, bias.data());
      }
      row += num_rows;
    }
    return {};
  }

  void AddTasks(const std::string& name, const Consume& consume) {
    const TensorInfo& info = *checkpoint_.Find(name);
    AddTasks(name,
             {.row_bytes = static_cast<size_t>(info.cols) * DTypeSize(options_.dtype), .consume = consume});
  }

  // Of all rows of the tensor; task: what they have in common.
  void AddTasks(const std::string& name, Task task) {
    const TensorInfo& info = *checkpoint_.Find(name);
    task.name = name;
    const auto row_bytes = static_cast<int64_t>(static_cast<size_t>(info.cols) * DTypeSize(options_.dtype));
    const int64_t rows_per_task = std::max<int64_t>(1, kTaskBytes / row_bytes);
    for (int64_t row = 0; row < info.rows; row += rows_per_task) {
      task.row_begin = row;
      task.num_rows = std::min(rows_per_task, info.rows - row);
      task.stored_bytes =
          info.stored_bytes / static_cast<uint64_t>(info.rows) * static_cast<uint64_t>(task.num_rows);
      tasks_.push_back(task);
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
  TANDEM_ASSIGN_OR_RETURN(layer.gate_up, loader->PlanLinear({mlp + "gate_proj", mlp + "up_proj"},
                                                            config.hidden_size, config.mlp_bias, true));
  TANDEM_ASSIGN_OR_RETURN(layer.down,
                          loader->PlanLinear({mlp + "down_proj"}, config.intermediate_size, config.mlp_bias));
  return layer;
}

}  // namespace

double DecoderWeights::LayerBytes() const {
  size_t bytes = 0;
  for (const LayerWeights& layer : layers) {
    for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      bytes += (*weight)->size_bytes();
  }
  return static_cast<double>(bytes) / static_cast<double>(layers.size());
}

std::string DecoderWeights::Describe() const {
  std::vector<std::pair<std::string, size_t>> forms;
  const auto add = [&forms](const LinearWeight& weight) {
    const std::string name = weight.format().is_quantized() ? DescribeWeightFormat(weight.format())
                                                            : std::string(DTypeName(weight.dtype()));
    const auto found = std::ranges::find(forms, name, &std::pair<std::string, size_t>::first);
    if (found == forms.end()) {
      forms.emplace_back(name, weight.size_bytes());
    } else {
      found->second += weight.size_bytes();
    }
  };
  for (const LayerWeights& layer : layers) {
    for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) add(**weight);
  }
  add(*lm_head);
  std::ranges::stable_sort(forms, std::greater<>(), &std::pair<std::string, size_t>::second);
  std::vector<std::string> names;
  names.reserve(forms.size());
  for (const auto& [name, bytes] : forms) names.push_back(name);
  return fmt::format("{}", fmt::join(names, "; "));
}

Result<DecoderWeights> LoadDecoderWeights(const Checkpoint& checkpoint, Device* device, Ops* ops,
                                          const WeightLoadOptions& options) {
  const ModelConfig& config = checkpoint.config();
  WeightLoader loader(checkpoint, device, ops, options);
  DecoderWeights weights;
  TANDEM_RETURN_IF_ERROR(loader.PlanVocabulary(&weights));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, PlanLayer(config, i, &loader));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, loader.ReadVector("model.norm.weight"));
  TANDEM_ASSIGN_OR_RETURN(weights.rope_table,
                          loader.Upload(BuildRopeTable(config, options.max_model_len), "RoPE table"));
  TANDEM_RETURN_IF_ERROR(loader.Run());
  weights.size_bytes = loader.size_bytes();
  return weights;
}

}  // namespace tandem
