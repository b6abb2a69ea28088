#include "model/weight_formats.h"

#include "base/param_error.h"

namespace tandem {
namespace {

// Small groups cost bytes, large ones accuracy.
constexpr int64_t kLargestGroup = 32;

Result<const TensorInfo*> FindTensor(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo* info = checkpoint.Find(name);
  if (info == nullptr) return MakeError(ErrorCode::kNotFound, "{}: no tensor {}", checkpoint.path(), name);
  return info;
}

Result<WeightFormat> FormatOfTensor(const Checkpoint& checkpoint, const TensorInfo& tensor,
                                    bool is_vocabulary, Quantization quantization) {
  const bool is_wanted = tensor.format.is_quantized() && quantization == Quantization::kFp8;
  if (is_wanted || tensor.format.has_integers() || !QuantizesFloats(quantization)) return tensor.format;
  const WeightFormat format = QuantizedFormat(quantization, tensor.cols, is_vocabulary, kLargestGroup);
  if (format.is_quantized()) return format;
  return MakeParamError(ErrorCode::kUnsupported, "quantization",
                        "{}: tensor '{}' has rows of {}, which groups of 16 or 32 do not divide",
                        checkpoint.path(), tensor.name, tensor.cols);
}

bool HaveSameOrder(const TensorInfo& a, const TensorInfo& b) {
  if (a.column_order == nullptr || b.column_order == nullptr) return a.column_order == b.column_order;
  return *a.column_order == *b.column_order;
}

}  // namespace

Result<WeightFormat> StoredWeightFormat(const Checkpoint& checkpoint, const std::vector<std::string>& tensors,
                                        bool is_vocabulary, const WeightFormatOptions& options,
                                        const Ops& ops) {
  if (options.quantization == Quantization::kNone) return WeightFormat();
  WeightFormat common;
  const TensorInfo* first = nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const TensorInfo* const tensor, FindTensor(checkpoint, tensors[i]));
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat format,
                            FormatOfTensor(checkpoint, *tensor, is_vocabulary, options.quantization));
    common = i == 0 ? format : CommonWeightFormat(common, format);
    if (i == 0) first = tensor;
    if (!HaveSameOrder(*first, *tensor)) return WeightFormat();
  }
  if (first->column_order != nullptr && (is_vocabulary || !ops.ReordersColumns())) return WeightFormat();
  if (!common.is_quantized() || ops.KeepsQuantized(common, first->cols, options.dtype)) return common;
  if (QuantizesFloats(options.quantization)) {
    return MakeParamError(ErrorCode::kUnsupported, "quantization",
                          "the backend does not multiply {} weights of {} at {}", tensors.front(),
                          DescribeWeightFormat(common), DTypeName(options.dtype));
  }
  return WeightFormat();
}

Result<WeightsEstimate> EstimateWeights(const Checkpoint& checkpoint, const WeightFormatOptions& options,
                                        const Ops& ops) {
  const ModelConfig& config = checkpoint.config();
  WeightsEstimate estimate;
  const auto add = [&](const std::string& prefix, const std::vector<std::string>& parts,
                       bool is_vocabulary) -> Status {
    std::vector<std::string> tensors;
    tensors.reserve(parts.size());
    for (const std::string& part : parts) tensors.push_back(prefix + part + ".weight");
    TANDEM_ASSIGN_OR_RETURN(const WeightFormat format,
                            StoredWeightFormat(checkpoint, tensors, is_vocabulary, options, ops));
    for (const std::string& name : tensors) {
      const TensorInfo& tensor = *checkpoint.Find(name);
      const bool is_twice = is_vocabulary && config.tie_word_embeddings && !format.is_quantized();
      const int64_t float_bytes =
          tensor.rows * tensor.cols * static_cast<int64_t>(DTypeSize(options.dtype)) * (is_twice ? 2 : 1);
      estimate.bytes +=
          format.is_quantized() ? QuantizedBytes(format, tensor.rows, tensor.cols) : float_bytes;
    }
    estimate.form =
        format.is_quantized() ? DescribeWeightFormat(format) : std::string(DTypeName(options.dtype));
    return {};
  };
  TANDEM_RETURN_IF_ERROR(add("model.", {"embed_tokens"}, true));
  if (!config.tie_word_embeddings) TANDEM_RETURN_IF_ERROR(add("", {"lm_head"}, true));
  for (int64_t i = config.num_layers - 1; i >= 0; --i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    TANDEM_RETURN_IF_ERROR(add(layer + "self_attn.", {"q_proj", "k_proj", "v_proj"}, false));
    TANDEM_RETURN_IF_ERROR(add(layer + "self_attn.", {"o_proj"}, false));
    TANDEM_RETURN_IF_ERROR(add(layer + "mlp.", {"down_proj"}, false));
    TANDEM_RETURN_IF_ERROR(add(layer + "mlp.", {"gate_proj", "up_proj"}, false));
  }
  return estimate;
}

}  // namespace tandem
