#include "ops/host/linear/quantized_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/host/linear/linear_kernels.h"

namespace tandem {
namespace {

// The bits of a word at which its codes begin; of 8 bits, the first four.
std::array<int, 8> CodeShifts(const QuantizedLayout& layout) {
  std::array<int, 8> shifts = {};
  for (size_t k = 0; k < shifts.size(); ++k) shifts[k] = CodeShift(layout, static_cast<int64_t>(k));
  return shifts;
}

// The power of two that brings the largest of a row's scales and minimums just below the end of fp16's range,
// so that small ones keep their bits. Values that are fp16 already are made no smaller: they would lose some.
float FactorOf(const float* scales, const float* minimums, int64_t num_groups) {
  constexpr int kLargestExponent = 14;
  constexpr float kLargestHalf = 65504.0F;
  float largest = 0.0F;
  for (int64_t g = 0; g < num_groups; ++g) {
    largest = std::max(largest, std::abs(scales[g]));
    if (minimums != nullptr) largest = std::max(largest, std::abs(minimums[g]));
  }
  if (largest == 0.0F) return 1.0F;
  const float factor = std::ldexp(1.0F, std::max(std::ilogb(largest) - kLargestExponent, -126));
  return largest <= kLargestHalf ? std::min(factor, 1.0F) : factor;
}

}  // namespace

HostQuantizedWeight::HostQuantizedWeight(const QuantizedWeightShape& shape, const WeightFormat& format)
    : shape_(shape),
      format_(format),
      layout_(MakeQuantizedLayout(format, shape.in_features)),
      num_panels_((shape.out_features + kPanelColumns - 1) / kPanelColumns),
      column_order_(shape.column_order.begin(), shape.column_order.end()),
      factors_(static_cast<size_t>(num_panels_ * kPanelColumns), 1.0F),
      bias_(factors_.size()) {
  TANDEM_CHECK(column_order_.empty() || static_cast<int64_t>(column_order_.size()) == shape.in_features,
               "an order of {} columns for {}", column_order_.size(), shape.in_features);
  shape_.column_order = {};  // the caller's memory
}

Result<std::unique_ptr<QuantizedLinearWeight>> HostQuantizedWeight::Create(const QuantizedWeightShape& shape,
                                                                           const WeightFormat& format,
                                                                           WeightArena* arena) {
  TANDEM_CHECK(shape.out_features > 0 && shape.in_features > 0, "weight [{}, {}]", shape.out_features,
               shape.in_features);
  if (shape.dtype != DType::kF32 && shape.dtype != DType::kBF16) {
    return MakeError(ErrorCode::kUnsupported, "the host backend multiplies fp32 and bf16, not {}",
                     DTypeName(shape.dtype));
  }
  if (!HasQuantizedLayout(format, shape.in_features)) {
    return MakeError(ErrorCode::kUnsupported, "the host backend has no layout for rows of {} as {}",
                     shape.in_features, DescribeWeightFormat(format));
  }
  std::unique_ptr<HostQuantizedWeight> weight(new HostQuantizedWeight(shape, format));
  weight->panels_ = arena->Allocate(static_cast<size_t>(weight->num_panels_ * weight->layout_.panel_bytes));
  if (weight->panels_ == nullptr) {
    return MakeError(ErrorCode::kResourceExhausted, "no memory for a weight of {} bytes [{}, {}]",
                     weight->size_bytes(), shape.out_features, shape.in_features);
  }
  return std::unique_ptr<QuantizedLinearWeight>(std::move(weight));
}

void HostQuantizedWeight::CheckRows(int64_t row_begin, int64_t num_rows) const {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= shape_.out_features,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, shape_.out_features);
}

std::byte* HostQuantizedWeight::Group(int64_t row, int64_t group) const {
  return panels_.get() + row / kPanelColumns * layout_.panel_bytes + group * layout_.group_bytes;
}

void HostQuantizedWeight::LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) {
  CheckRows(row_begin, rows.num_rows);
  TANDEM_CHECK(rows.format == format_ && rows.cols == shape_.in_features, "rows of {} as {} for {} as {}",
               rows.cols, DescribeWeightFormat(rows.format), shape_.in_features,
               DescribeWeightFormat(format_));
  const int64_t num_groups = layout_.num_groups;
  const int64_t codes_per_word = 32 / layout_.bits;
  const std::array<int, 8> shifts = CodeShifts(layout_);
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const int64_t row = row_begin + i;
    const int64_t column = row % kPanelColumns;
    const float* scales = rows.scales.data() + i * num_groups;
    const float* minimums = layout_.has_minimum ? rows.minimums.data() + i * num_groups : nullptr;
    const float factor = layout_.is_fp8 ? 1.0F : FactorOf(scales, minimums, num_groups);
    factors_[static_cast<size_t>(row)] = factor;
    const uint8_t* codes = rows.codes.data() + i * rows.cols;
    for (int64_t g = 0; g < num_groups; ++g) {
      std::byte* group = Group(row, g);
      auto* halves = reinterpret_cast<fp16_t*>(group) + column;
      if (layout_.is_fp8) {
        reinterpret_cast<float*>(group)[column] = scales[g];
      } else {
        halves[0] = F32ToF16(scales[g] / factor);
      }
      if (minimums != nullptr) halves[kPanelColumns] = F32ToF16(minimums[g] / factor);
      auto* words = reinterpret_cast<uint32_t*>(group + layout_.words_offset) + column;
      for (int64_t k = 0; k < layout_.group_size; k += codes_per_word) {
        uint32_t word = 0;
        for (int64_t j = 0; j < codes_per_word; ++j)
          word |= static_cast<uint32_t>(codes[j]) << shifts[static_cast<size_t>(j)];
        *words = word;
        codes += codes_per_word;
        words += kPanelColumns;
      }
    }
  }
}

void HostQuantizedWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  CheckRows(row_begin, num_rows);
  std::vector<float> values(static_cast<size_t>(num_rows * shape_.in_features));
  if (shape_.dtype == DType::kF32) {
    std::memcpy(values.data(), rows, values.size() * sizeof(float));
  } else {
    std::transform(static_cast<const bf16_t*>(rows), static_cast<const bf16_t*>(rows) + values.size(),
                   values.begin(), BF16ToF32);
  }
  QuantizedRows quantized;
  QuantizeRows(values.data(), num_rows, shape_.in_features, format_, &quantized);
  LoadQuantizedRows(row_begin, quantized);
}

void HostQuantizedWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  CheckRows(row_begin, num_rows);
  std::copy_n(bias, num_rows, bias_.begin() + row_begin);
  has_bias_.store(true, std::memory_order_relaxed);
}

void HostQuantizedWeight::DequantizeRow(int64_t row, float* to) const {
  CheckRows(row, 1);
  const int64_t column = row % kPanelColumns;
  const float factor = factors_[static_cast<size_t>(row)];
  const int64_t codes_per_word = 32 / layout_.bits;
  const std::array<int, 8> shifts = CodeShifts(layout_);
  const uint32_t mask = (uint32_t{1} << layout_.bits) - 1;
  for (int64_t g = 0; g < layout_.num_groups; ++g) {
    const std::byte* group = Group(row, g);
    const auto* halves = reinterpret_cast<const fp16_t*>(group) + column;
    const float scale =
        layout_.is_fp8 ? reinterpret_cast<const float*>(group)[column] : F16ToF32(halves[0]) * factor;
    const float minimum = layout_.has_minimum ? F16ToF32(halves[kPanelColumns]) * factor
                          : layout_.is_fp8    ? 0.0F
                                              : scale * static_cast<float>(-format_.zero_code());
    const auto* words = reinterpret_cast<const uint32_t*>(group + layout_.words_offset) + column;
    for (int64_t k = 0; k < layout_.group_size; ++k) {
      const auto in_word = static_cast<size_t>(k % codes_per_word);
      const uint32_t code = words[k / codes_per_word * kPanelColumns] >> shifts[in_word] & mask;
      // The product of a code and 11 bits is exact: one rounding, as the kernels have it.
      const float number =
          layout_.is_fp8 ? E4M3ToF32(static_cast<fp8_e4m3_t>(code)) : static_cast<float>(code);
      const float value = number * scale + minimum;
      *to++ = shape_.dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(value)) : value;
    }
  }
}

}  // namespace tandem
