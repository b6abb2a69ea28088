#include "load/quantized_modules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "load/fp8_weight.h"
#include "load/packed_weight.h"

namespace tandem {
namespace {

template <typename... Args>
Error Malformed(const SafetensorsTensor& tensor, fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kMalformedFile, "{}: tensor '{}' {}", tensor.file, tensor.name,
                   fmt::format(format, std::forward<Args>(args)...));
}

Status CheckDType(const SafetensorsTensor& tensor, std::string_view wanted) {
  if (tensor.dtype == wanted) return {};
  return Malformed(tensor, "is stored as {}, not as {}", tensor.dtype, wanted);
}

// why: what the shape comes from, for the message.
Status CheckShape(const SafetensorsTensor& tensor, const std::vector<int64_t>& wanted, std::string_view why) {
  if (tensor.shape == wanted) return {};
  return Malformed(tensor, "has shape [{}], {} wants [{}]", fmt::join(tensor.shape, ", "), why,
                   fmt::join(wanted, ", "));
}

// Of parts that tell sizes: what follows cannot overflow, because the file holds as many values.
Status CheckMatrix(const SafetensorsTensor& tensor) {
  if (tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0) return {};
  return Malformed(tensor, "has shape [{}], not that of a matrix", fmt::join(tensor.shape, ", "));
}

Status CheckScaleType(const SafetensorsTensor& scales) {
  if (scales.type) return {};
  return Malformed(scales, "is stored as {}, not as F32, F16 or BF16", scales.dtype);
}

int64_t IntegerAt(const SafetensorsTensor& tensor, int64_t i) {
  if (tensor.dtype == "I64") {
    int64_t value = 0;
    std::memcpy(&value, tensor.data + i * 8, sizeof(value));
    return value;
  }
  int32_t value = 0;
  std::memcpy(&value, tensor.data + i * 4, sizeof(value));
  return value;
}

Status CheckIntegers(const SafetensorsTensor& tensor) {
  return tensor.dtype == "I64" ? Status() : CheckDType(tensor, "I32");
}

// Columns in the order of their groups, groups: the group of each. Empty if they are in that order.
Result<std::vector<int32_t>> ReadColumnOrder(const SafetensorsTensor& groups, int64_t cols,
                                             int64_t group_size) {
  TANDEM_RETURN_IF_ERROR(CheckIntegers(groups));
  TANDEM_RETURN_IF_ERROR(CheckShape(groups, {cols}, "the weight"));
  std::vector<int32_t> order(static_cast<size_t>(cols));
  std::vector<int64_t> next(static_cast<size_t>(cols / group_size));
  for (size_t g = 0; g < next.size(); ++g) next[g] = static_cast<int64_t>(g) * group_size;
  for (int64_t col = 0; col < cols; ++col) {
    const int64_t group = IntegerAt(groups, col);
    if (group < 0 || group >= static_cast<int64_t>(next.size()))
      return Malformed(groups, "puts column {} into group {} of {}", col, group, next.size());
    int64_t& place = next[static_cast<size_t>(group)];
    if (place == (group + 1) * group_size)
      return Malformed(groups, "puts more than {} columns into group {}", group_size, group);
    order[static_cast<size_t>(place++)] = static_cast<int32_t>(col);
  }
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

class ModuleJoiner {
 public:
  ModuleJoiner(const QuantizationConfig& config, const std::vector<SafetensorsTensor>& tensors)
      : config_(config) {
    for (const SafetensorsTensor& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  // Joins what belongs to tensor if it has the codes of a module.
  Status Join(const SafetensorsTensor& tensor) {
    const bool is_gptq = config_.method == QuantizationMethod::kGptq;
    if (is_gptq || config_.method == QuantizationMethod::kAwq) {
      if (!tensor.name.ends_with(".qweight")) return {};
      Begin(tensor, ".qweight");
      return is_gptq ? JoinGptq(tensor) : JoinAwq(tensor);
    }
    if (tensor.name.ends_with(".weight_packed") && config_.method == QuantizationMethod::kCompressedTensors) {
      Begin(tensor, ".weight_packed");
      return JoinCompressed(tensor);
    }
    if (!tensor.name.ends_with(".weight") || tensor.dtype != "F8_E4M3") return {};
    Begin(tensor, ".weight");
    return JoinFp8(tensor);
  }

  std::vector<MappedTensor> TakeWeights() { return std::move(weights_); }
  // Names of the tensors that weights are made of.
  const std::set<std::string_view>& taken() const { return taken_; }

 private:
  void Begin(const SafetensorsTensor& codes, std::string_view suffix) {
    module_ = codes.name.substr(0, codes.name.size() - suffix.size());
    stored_bytes_ = codes.num_bytes;
    taken_.insert(codes.name);
  }

  const SafetensorsTensor* Find(std::string_view suffix) const {
    const auto found = by_name_.find(module_ + std::string(suffix));
    return found == by_name_.end() ? nullptr : found->second;
  }

  // A part of the module, nullptr if there is none.
  const SafetensorsTensor* Take(std::string_view suffix) {
    const SafetensorsTensor* part = Find(suffix);
    if (part != nullptr) {
      taken_.insert(part->name);
      stored_bytes_ += part->num_bytes;
    }
    return part;
  }

  Result<const SafetensorsTensor*> TakeRequired(const SafetensorsTensor& codes, std::string_view suffix) {
    const SafetensorsTensor* part = Take(suffix);
    if (part == nullptr) return Malformed(codes, "has no '{}{}' beside it", module_, suffix);
    return part;
  }

  void Add(int64_t rows, int64_t cols, std::string stored_type, std::shared_ptr<const CodedWeight> coded) {
    MappedTensor weight;
    weight.info.name = module_ + ".weight";
    weight.info.stored_type = std::move(stored_type);
    weight.info.rows = rows;
    weight.info.cols = cols;
    weight.info.stored_bytes = stored_bytes_;
    weight.coded = std::move(coded);
    weights_.push_back(std::move(weight));
  }

  void AddPacked(PackedParts parts) {
    const int64_t rows = parts.rows;
    const int64_t cols = parts.cols;
    std::string stored_type = fmt::format("{} int{}", QuantizationMethodName(config_.method), parts.bits);
    Add(rows, cols, std::move(stored_type), std::make_shared<const PackedWeight>(std::move(parts)));
  }

  // What a scheme makes of the shape: bits and groups. Errors: groups that do not divide the columns, rows
  // that do not fill words.
  Result<PackedParts> Begin(const SafetensorsTensor& codes, const IntegerScheme& scheme, int64_t rows,
                            int64_t cols) const {
    const int64_t group_size = scheme.group_size == 0 ? cols : scheme.group_size;
    if (cols % group_size != 0)
      return Malformed(codes, "has {} columns, which groups of {} do not divide", cols, group_size);
    if (!scheme.symmetric && rows % (32 / scheme.bits) != 0)
      return Malformed(codes, "has {} rows, whose zero points do not fill words", rows);
    return PackedParts{.codes = codes,
                       .bits = scheme.bits,
                       .rows = rows,
                       .cols = cols,
                       .group_size = group_size,
                       .is_symmetric = scheme.symmetric};
  }

  std::string Why(const PackedParts& parts) const {
    return fmt::format("[{}, {}] of {} bits in groups of {}", parts.rows, parts.cols, parts.bits,
                       parts.group_size);
  }

  // Scales and zero points of AWQ and GPTQ.
  Status TakeGroupLines(PackedParts* parts) {
    const SafetensorsTensor& codes = parts->codes;
    const int64_t groups = parts->cols / parts->group_size;
    TANDEM_ASSIGN_OR_RETURN(const SafetensorsTensor* const scales, TakeRequired(codes, ".scales"));
    TANDEM_RETURN_IF_ERROR(CheckScaleType(*scales));
    TANDEM_RETURN_IF_ERROR(CheckShape(*scales, {groups, parts->rows}, Why(*parts)));
    parts->scales = *scales;
    TANDEM_ASSIGN_OR_RETURN(const SafetensorsTensor* const zeros, TakeRequired(codes, ".qzeros"));
    TANDEM_RETURN_IF_ERROR(CheckDType(*zeros, "I32"));
    TANDEM_RETURN_IF_ERROR(CheckShape(*zeros, {groups, parts->rows * parts->bits / 32}, Why(*parts)));
    parts->zeros = *zeros;
    return {};
  }

  Status JoinAwq(const SafetensorsTensor& codes) {
    TANDEM_RETURN_IF_ERROR(CheckDType(codes, "I32"));
    TANDEM_RETURN_IF_ERROR(CheckMatrix(codes));
    const IntegerScheme& scheme = config_.schemes.front();
    TANDEM_ASSIGN_OR_RETURN(PackedParts parts,
                            Begin(codes, scheme, codes.shape[1] * (32 / scheme.bits), codes.shape[0]));
    parts.layout = {.lines_are_columns = true, .is_interleaved = true};
    TANDEM_RETURN_IF_ERROR(TakeGroupLines(&parts));
    AddPacked(std::move(parts));
    return {};
  }

  Status JoinGptq(const SafetensorsTensor& codes) {
    TANDEM_RETURN_IF_ERROR(CheckDType(codes, "I32"));
    TANDEM_RETURN_IF_ERROR(CheckMatrix(codes));
    const IntegerScheme& scheme = config_.schemes.front();
    const int64_t cols = codes.shape[0] * (32 / scheme.bits);
    const SafetensorsTensor* groups = Take(".g_idx");
    if (groups != nullptr && groups->shape != std::vector<int64_t>{cols}) {
      return Malformed(*groups, "has shape [{}], '{}' has {} columns of {} bits",
                       fmt::join(groups->shape, ", "), codes.name, cols, scheme.bits);
    }
    TANDEM_ASSIGN_OR_RETURN(PackedParts parts, Begin(codes, scheme, codes.shape[1], cols));
    parts.layout = {.lines_are_columns = true, .codes_across_lines = true};
    parts.stored_zero_offset = config_.zeros_less_one ? 1 : 0;
    TANDEM_RETURN_IF_ERROR(TakeGroupLines(&parts));
    if (groups != nullptr) {
      TANDEM_ASSIGN_OR_RETURN(parts.column_order, ReadColumnOrder(*groups, cols, parts.group_size));
    }
    AddPacked(std::move(parts));
    return {};
  }

  // The scheme of a group that has these bits and groups; of two that differ in zero points, the one that the
  // tensors fit.
  Result<IntegerScheme> FindScheme(const SafetensorsTensor& codes, int64_t bits, int64_t cols,
                                   int64_t group_size) const {
    const bool has_zeros = Find(".weight_zero_point") != nullptr;
    std::optional<IntegerScheme> found;
    for (const IntegerScheme& scheme : config_.schemes) {
      const int64_t wanted = scheme.group_size == 0 ? cols : scheme.group_size;
      if (scheme.bits != bits || wanted != group_size) continue;
      if (!found || scheme.symmetric != has_zeros) found = scheme;
    }
    if (found) return *found;
    return Malformed(codes, "has {} columns of {} bits in groups of {}, which is none of the schemes of {}",
                     cols, bits, group_size, config_.where);
  }

  // Rows and columns of a weight of compressed-tensors.
  Result<std::pair<int64_t, int64_t>> ReadWeightShape(const SafetensorsTensor& codes) {
    TANDEM_ASSIGN_OR_RETURN(const SafetensorsTensor* const shape, TakeRequired(codes, ".weight_shape"));
    TANDEM_RETURN_IF_ERROR(CheckIntegers(*shape));
    TANDEM_RETURN_IF_ERROR(CheckShape(*shape, {2}, "a matrix"));
    const int64_t rows = IntegerAt(*shape, 0);
    const int64_t cols = IntegerAt(*shape, 1);
    const int64_t words = codes.shape[1];
    if (rows != codes.shape[0] || cols < words || cols > 32 * words)
      return Malformed(*shape, "says [{}, {}], '{}' has the shape [{}, {}]", rows, cols, codes.name,
                       codes.shape[0], words);
    return std::pair(rows, cols);
  }

  Status JoinCompressed(const SafetensorsTensor& codes) {
    TANDEM_RETURN_IF_ERROR(CheckDType(codes, "I32"));
    TANDEM_RETURN_IF_ERROR(CheckMatrix(codes));
    TANDEM_ASSIGN_OR_RETURN(const auto shape, ReadWeightShape(codes));
    const auto [rows, cols] = shape;
    TANDEM_ASSIGN_OR_RETURN(const SafetensorsTensor* const scales, TakeRequired(codes, ".weight_scale"));
    TANDEM_RETURN_IF_ERROR(CheckScaleType(*scales));
    TANDEM_RETURN_IF_ERROR(CheckMatrix(*scales));
    const int64_t groups = scales->shape[1];
    if (codes.shape[1] * 32 % cols != 0 || cols % groups != 0)
      return Malformed(codes, "has {} words a row and {} groups, which do not divide {} columns",
                       codes.shape[1], groups, cols);
    TANDEM_ASSIGN_OR_RETURN(const IntegerScheme scheme,
                            FindScheme(codes, codes.shape[1] * 32 / cols, cols, cols / groups));
    TANDEM_ASSIGN_OR_RETURN(PackedParts parts, Begin(codes, scheme, rows, cols));
    TANDEM_RETURN_IF_ERROR(CheckShape(*scales, {rows, groups}, Why(parts)));
    parts.scales = *scales;
    parts.layout.zeros_across_lines = true;
    // Of symmetric weights older files have zero points too, of another type.
    const SafetensorsTensor* zeros = Take(".weight_zero_point");
    if (!scheme.symmetric) {
      if (zeros == nullptr) return Malformed(codes, "has no '{}.weight_zero_point' beside it", module_);
      TANDEM_RETURN_IF_ERROR(CheckDType(*zeros, "I32"));
      TANDEM_RETURN_IF_ERROR(CheckShape(*zeros, {rows * parts.bits / 32, groups}, Why(parts)));
      parts.zeros = *zeros;
    }
    TANDEM_RETURN_IF_ERROR(TakeCompressedOrder(&parts));
    AddPacked(std::move(parts));
    return {};
  }

  Status TakeCompressedOrder(PackedParts* parts) {
    const SafetensorsTensor* groups = Take(".weight_g_idx");
    if (groups == nullptr || groups->num_bytes == 0) return {};
    TANDEM_RETURN_IF_ERROR(CheckIntegers(*groups));
    // -1: never set.
    if (IntegerAt(*groups, 0) == -1) return {};
    TANDEM_ASSIGN_OR_RETURN(parts->column_order, ReadColumnOrder(*groups, parts->cols, parts->group_size));
    return {};
  }

  Status JoinFp8(const SafetensorsTensor& codes) {
    TANDEM_RETURN_IF_ERROR(CheckMatrix(codes));
    const int64_t rows = codes.shape[0];
    const int64_t cols = codes.shape[1];
    // Both names mean what values are multiplied by.
    const SafetensorsTensor* scales = Take(".weight_scale_inv");
    if (scales == nullptr) scales = Take(".weight_scale");
    if (scales == nullptr)
      return Malformed(codes, "has neither '{}.weight_scale_inv' nor '{}.weight_scale' beside it", module_,
                       module_);
    TANDEM_RETURN_IF_ERROR(CheckScaleType(*scales));
    Fp8Parts parts{.codes = codes, .scales = *scales, .block_rows = rows, .block_cols = cols};
    const int64_t num_scales =
        std::accumulate(scales->shape.begin(), scales->shape.end(), int64_t{1}, std::multiplies<>());
    const bool is_a_row_each = num_scales == rows && !scales->shape.empty() && scales->shape.front() == rows;
    if (is_a_row_each) {
      parts.block_rows = 1;
    } else if (num_scales != 1) {
      if (config_.block_rows == 0)
        return Malformed(*scales, "has shape [{}], '{}' needs one scale, or one a row",
                         fmt::join(scales->shape, ", "), codes.name);
      parts.block_rows = config_.block_rows;
      parts.block_cols = config_.block_cols;
      const std::vector<int64_t> blocks = {(rows + parts.block_rows - 1) / parts.block_rows,
                                           (cols + parts.block_cols - 1) / parts.block_cols};
      TANDEM_RETURN_IF_ERROR(CheckShape(
          *scales, blocks,
          fmt::format("[{}, {}] in blocks of {} x {}", rows, cols, parts.block_rows, parts.block_cols)));
    }
    Add(rows, cols, "F8_E4M3", std::make_shared<const Fp8Weight>(std::move(parts)));
    return {};
  }

  const QuantizationConfig& config_;
  std::unordered_map<std::string_view, const SafetensorsTensor*> by_name_;
  std::vector<MappedTensor> weights_;
  std::set<std::string_view> taken_;
  // Of the module that is being joined.
  std::string module_;
  uint64_t stored_bytes_ = 0;
};

}  // namespace

Result<std::vector<MappedTensor>> TakeQuantizedModules(const QuantizationConfig& config,
                                                       std::vector<SafetensorsTensor>* tensors) {
  ModuleJoiner joiner(config, *tensors);
  for (const SafetensorsTensor& tensor : *tensors) TANDEM_RETURN_IF_ERROR(joiner.Join(tensor));
  std::vector<SafetensorsTensor> left;
  std::ranges::copy_if(*tensors, std::back_inserter(left), [&](const SafetensorsTensor& tensor) {
    return !joiner.taken().contains(tensor.name);
  });
  std::vector<MappedTensor> weights = joiner.TakeWeights();
  *tensors = std::move(left);
  return weights;
}

}  // namespace tandem
