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

#include "base/param_error.h"
#include "load/load_progress.h"
#include "model/rope_table.h"
#include "model/shard_slices.h"
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
        slices_(SlicesOf(checkpoint.config(), options.shard)),
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

  // A linear operation of the file, "model.layers.0.mlp.up_proj", and which of its weight is the shard's.
  struct Part {
    std::string prefix;
    Slice rows;
  };

  // One weight made of rows of several tensors, in order, and of a range of their columns: num_columns is
  // what they have. Its rows are read by Run.
  Result<std::unique_ptr<LinearWeight>> PlanLinear(const std::vector<Part>& parts, const Slice& columns,
                                                   int64_t num_columns, bool has_bias,
                                                   bool is_gate_up = false) {
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat stored, FormatOf(parts, false));
    const ColumnRange range = RangeOf(columns, num_columns);
    int64_t out_features = 0;
    for (const Part& part : parts) out_features += part.rows.count;
    if (stored.is_quantized()) {
      QuantizedWeightShape shape = {out_features, columns.count, options_.dtype, is_gate_up};
      // StoredWeightFormat has found that it is one for all of them.
      const auto* order = checkpoint_.Find(parts.front().prefix + ".weight")->column_order;
      if (order != nullptr) shape.column_order = *order;
      TANDEM_ASSIGN_OR_RETURN(const WeightFormat format,
                              CutFormat(parts.front(), stored, range, num_columns));
      TANDEM_ASSIGN_OR_RETURN(auto weight, PlanQuantized(parts, range, shape, has_bias, format));
      return std::unique_ptr<LinearWeight>(std::move(weight));
    }
    return PlanFloats(parts, range, has_bias,
                      is_gate_up ? ops_->CreateGateUpWeight(out_features / 2, columns.count, options_.dtype)
                                 : ops_->CreateLinearWeight(out_features, columns.count, options_.dtype));
  }

  // The embedding, the lm_head, and what the two share.
  Status PlanVocabulary(DecoderWeights* weights) {
    const ModelConfig& config = checkpoint_.config();
    const std::string embedding = "model.embed_tokens";
    const std::string head = config.tie_word_embeddings ? embedding : "lm_head";
    const std::vector<Part> head_parts = {{head, slices_.vocab}};
    const std::vector<Part> embedding_parts = {{embedding, slices_.vocab}};
    const QuantizedWeightShape shape = {slices_.vocab.count, config.hidden_size, options_.dtype};
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat head_format, FormatOf(head_parts, true));
    if (head_format.is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(auto quantized,
                              PlanQuantized(head_parts, kAllColumns, shape, false, head_format));
      if (config.tie_word_embeddings) weights->quantized_embedding = quantized.get();
      weights->lm_head = std::move(quantized);
    } else {
      TANDEM_ASSIGN_OR_RETURN(
          weights->lm_head,
          PlanFloats(head_parts, kAllColumns, false,
                     ops_->CreateLinearWeight(shape.out_features, shape.in_features, shape.dtype)));
    }
    if (weights->quantized_embedding != nullptr) return {};
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat format, FormatOf(embedding_parts, true));
    if (format.is_quantized()) {
      TANDEM_ASSIGN_OR_RETURN(weights->untied_embedding,
                              PlanQuantized(embedding_parts, kAllColumns, shape, false, format));
      weights->quantized_embedding = weights->untied_embedding.get();
      return {};
    }
    TANDEM_ASSIGN_OR_RETURN(weights->embedding_memory,
                            PlanMatrix(embedding + ".weight", slices_.vocab, &weights->embedding));
    return {};
  }

  Result<Buffer> PlanMatrix(const std::string& name, const Slice& rows, MatrixView* view) {
    const TensorInfo* info = checkpoint_.Find(name);
    if (info == nullptr) return MakeError(ErrorCode::kNotFound, "{}: no tensor {}", checkpoint_.path(), name);
    const size_t row_bytes = static_cast<size_t>(info->cols) * DTypeSize(options_.dtype);
    TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device_->Allocate(static_cast<size_t>(rows.count) * row_bytes,
                                                             MemoryKind::kDevice, name));
    size_bytes_ += buffer.size_bytes();
    *view = MatrixView::Dense(buffer.data(), options_.dtype, rows.count, info->cols);
    auto* base = buffer.as<std::byte>();
    AddTasks(name, rows, kAllColumns,
             [this, base, row_bytes](int64_t begin, int64_t count, const void* data) {
               const std::lock_guard lock(copy_mutex_);
               copy_stream_->Copy(base + static_cast<size_t>(begin) * row_bytes, data,
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
  const ShardSlices& slices() const { return slices_; }
  // Of weights that are cut by columns, whose products are summed, one shard has the bias.
  bool has_summed_bias() const { return options_.shard.rank == 0; }

 private:
  // row_begin: of the rows that are read.
  using Consume = std::function<void(int64_t row_begin, int64_t num_rows, const void* rows)>;
  struct Task {
    std::string name;
    Slice rows;             // of the tensor, that are read
    ColumnRange columns;    // of those
    int64_t row_begin = 0;  // of the task, within rows
    int64_t num_rows = 0;
    size_t row_bytes = 0;  // of staging; 0 for a quantized weight
    uint64_t stored_bytes = 0;
    Consume consume;
    QuantizedLinearWeight* quantized = nullptr;  // instead of consume: gets the rows behind first_row
    int64_t first_row = 0;
    WeightFormat stored;  // of a quantized weight, of all columns
  };

  Status RunTask(const Task& task, void* staging, QuantizedRows* codes) const {
    const int64_t row = task.rows.begin + task.row_begin;
    if (task.quantized != nullptr) {
      TANDEM_RETURN_IF_ERROR(
          checkpoint_.ReadQuantizedRows(task.name, row, task.num_rows, task.stored, codes));
      if (task.columns != kAllColumns) *codes = ColumnsOf(*codes, task.columns.begin, task.columns.count);
      task.quantized->LoadQuantizedRows(task.first_row + task.row_begin, *codes);
      return {};
    }
    TANDEM_RETURN_IF_ERROR(
        checkpoint_.ReadColumns(task.name, row, task.num_rows, task.columns, options_.dtype, staging));
    task.consume(task.row_begin, task.num_rows, staging);
    return {};
  }

  Result<WeightFormat> FormatOf(const std::vector<Part>& parts, bool is_vocabulary) const {
    std::vector<std::string> tensors;
    tensors.reserve(parts.size());
    for (const Part& part : parts) tensors.push_back(part.prefix + ".weight");
    return StoredWeightFormat(checkpoint_, tensors, is_vocabulary, {options_.quantization, options_.dtype},
                              *ops_);
  }

  static ColumnRange RangeOf(const Slice& columns, int64_t num_columns) {
    return columns.count == num_columns ? kAllColumns : ColumnRange{columns.begin, columns.count};
  }

  // Of a weight whose columns are cut.
  Result<WeightFormat> CutFormat(const Part& part, const WeightFormat& stored, const ColumnRange& range,
                                 int64_t num_columns) const {
    if (range == kAllColumns) return stored;
    const auto format = FormatOfColumns(stored, num_columns, range.begin, range.count);
    const bool reordered = checkpoint_.Find(part.prefix + ".weight")->column_order != nullptr;
    if (format && !reordered && ops_->KeepsQuantized(*format, range.count, options_.dtype)) return *format;
    return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                          "{}: the {} columns of {} ({}{}) cannot be cut into {} shards; --quantization none "
                          "widens its weights, which can",
                          checkpoint_.path(), num_columns, part.prefix, DescribeWeightFormat(stored),
                          reordered ? ", columns reordered" : "", options_.shard.size);
  }

  // created: with the rows of all parts.
  Result<std::unique_ptr<LinearWeight>> PlanFloats(const std::vector<Part>& parts, const ColumnRange& columns,
                                                   bool has_bias,
                                                   Result<std::unique_ptr<LinearWeight>> created) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, std::move(created));
    LinearWeight* target = weight.get();
    TANDEM_RETURN_IF_ERROR(PlanRows(
        parts, has_bias, target, [&](const std::string& tensor, const Slice& rows, int64_t first_row) {
          AddTasks(tensor, rows, columns,
                   [target, first_row](int64_t begin, int64_t count, const void* data) {
                     target->LoadRows(first_row + begin, count, data);
                   });
        }));
    return weight;
  }

  // format: of the columns.
  Result<std::unique_ptr<QuantizedLinearWeight>> PlanQuantized(const std::vector<Part>& parts,
                                                               const ColumnRange& columns,
                                                               const QuantizedWeightShape& shape,
                                                               bool has_bias, const WeightFormat& format) {
    TANDEM_ASSIGN_OR_RETURN(auto weight, ops_->CreateQuantizedWeight(shape, format));
    QuantizedLinearWeight* target = weight.get();
    WeightFormat stored = format;
    if (columns != kAllColumns) {
      TANDEM_ASSIGN_OR_RETURN(stored, FormatOf(parts, false));
    }
    TANDEM_RETURN_IF_ERROR(PlanRows(parts, has_bias, target,
                                    [&](const std::string& tensor, const Slice& rows, int64_t first_row) {
                                      AddTasks(tensor, {.rows = rows,
                                                        .columns = columns,
                                                        .quantized = target,
                                                        .first_row = first_row,
                                                        .stored = stored});
                                    }));
    return weight;
  }

  // Calls add_tasks(tensor, rows, their place in the weight) for every part, and loads the biases.
  template <typename AddTasksOf>
  Status PlanRows(const std::vector<Part>& parts, bool has_bias, LinearWeight* weight,
                  const AddTasksOf& add_tasks) {
    size_bytes_ += weight->size_bytes();
    int64_t row = 0;
    for (const Part& part : parts) {
      add_tasks(part.prefix + ".weight", part.rows, row);
      if (has_bias) {
        std::vector<float> bias(static_cast<size_t>(part.rows.count));
        TANDEM_RETURN_IF_ERROR(checkpoint_.ReadColumns(
            part.prefix + ".bias", 0, 1, {part.rows.begin, part.rows.count}, DType::kF32, bias.data()));
        weight->LoadBias(row, part.rows.count, bias.data());
      }
      row += part.rows.count;
    }
    return {};
  }

  void AddTasks(const std::string& name, const Slice& rows, const ColumnRange& columns,
                const Consume& consume) {
    const TensorInfo& info = *checkpoint_.Find(name);
    const int64_t num_columns = columns == kAllColumns ? info.cols : columns.count;
    AddTasks(name, {.rows = rows,
                    .columns = columns,
                    .row_bytes = static_cast<size_t>(num_columns) * DTypeSize(options_.dtype),
                    .consume = consume});
  }

  // Of all its rows; task: what they have in common.
  void AddTasks(const std::string& name, Task task) {
    const TensorInfo& info = *checkpoint_.Find(name);
    task.name = name;
    const auto row_bytes = static_cast<int64_t>(static_cast<size_t>(info.cols) * DTypeSize(options_.dtype));
    const int64_t rows_per_task = std::max<int64_t>(1, kTaskBytes / row_bytes);
    for (int64_t row = 0; row < task.rows.count; row += rows_per_task) {
      task.row_begin = row;
      task.num_rows = std::min(rows_per_task, task.rows.count - row);
      task.stored_bytes =
          info.stored_bytes / static_cast<uint64_t>(info.rows) * static_cast<uint64_t>(task.num_rows);
      tasks_.push_back(task);
    }
  }

  const Checkpoint& checkpoint_;
  Device* device_;
  Ops* ops_;
  const WeightLoadOptions options_;
  const ShardSlices slices_;
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
  const ShardSlices& slices = loader->slices();
  const Slice hidden = {0, config.hidden_size};
  const Slice q_rows = slices.heads.Of(config.head_dim);
  const Slice kv_rows = slices.kv_heads.Of(config.head_dim);
  TANDEM_ASSIGN_OR_RETURN(layer.qkv, loader->PlanLinear({{attention + "q_proj", q_rows},
                                                         {attention + "k_proj", kv_rows},
                                                         {attention + "v_proj", kv_rows}},
                                                        hidden, hidden.count, config.qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.output,
                          loader->PlanLinear({{attention + "o_proj", hidden}}, q_rows, config.q_width(),
                                             config.output_bias && loader->has_summed_bias()));
  TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm, loader->ReadVector(prefix + "post_attention_layernorm.weight"));
  TANDEM_ASSIGN_OR_RETURN(layer.gate_up,
                          loader->PlanLinear({{mlp + "gate_proj", slices.mlp}, {mlp + "up_proj", slices.mlp}},
                                             hidden, hidden.count, config.mlp_bias, true));
  TANDEM_ASSIGN_OR_RETURN(
      layer.down, loader->PlanLinear({{mlp + "down_proj", hidden}}, slices.mlp, config.intermediate_size,
                                     config.mlp_bias && loader->has_summed_bias()));
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
