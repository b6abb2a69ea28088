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

using Numbers = std::span<const float>;

// The power of two that brings the largest of a row's scales and minimums just below the end of fp16's range,
// so that small ones keep their bits. Values that are fp16 already are made no smaller: they would lose some.
float FactorOf(Numbers scales, Numbers minimums) {
  constexpr int kLargestExponent = 14;
  constexpr float kLargestHalf = 65504.0F;
  float largest = 0.0F;
  for (const float scale : scales) largest = std::max(largest, std::abs(scale));
  for (const float minimum : minimums) largest = std::max(largest, std::abs(minimum));
  if (largest == 0.0F) return 1.0F;
  const float factor = std::ldexp(1.0F, std::max(std::ilogb(largest) - kLargestExponent, -126));
  return largest <= kLargestHalf ? std::min(factor, 1.0F) : factor;
}

// How many times a unit a number is that is a whole multiple of it.
int MultipleOf(float number, float unit) {
  return unit == 0.0F ? 0 : static_cast<int>(std::nearbyint(number / unit));
}

// Numbers of row i, of num_numbers in as many rows as there are.
Numbers OfRow(const std::vector<float>& numbers, int64_t i, int64_t num_rows) {
  const size_t count = numbers.size() / static_cast<size_t>(num_rows);
  return Numbers(numbers).subspan(static_cast<size_t>(i) * count, count);
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
  return panels_.get() + row / kPanelColumns * layout_.panel_bytes + layout_.groups_offset +
         group * layout_.group_bytes;
}

void HostQuantizedWeight::StoreNumbers(int64_t row, const RowNumbers& numbers) {
  const int64_t column = row % kPanelColumns;
  const bool has_blocks = layout_.groups_per_block > 0;
  const Numbers no_minimums;
  float factor = 1.0F;
  if (has_blocks) {
    factor = FactorOf(numbers.scale_units, numbers.minimum_units);
  } else if (!layout_.is_fp8) {
    factor = FactorOf(numbers.scales, layout_.has_zero_points ? no_minimums : numbers.minimums);
  }
  factors_[static_cast<size_t>(row)] = factor;
  if (has_blocks) {
    auto* units = reinterpret_cast<fp16_t*>(Group(row, 0) - layout_.groups_offset) + column;
    for (size_t block = 0; block < numbers.scale_units.size(); ++block) {
      *units = F32ToF16(numbers.scale_units[block] / factor);
      units += kPanelColumns;
      if (!layout_.has_minimum) continue;
      *units = F32ToF16(numbers.minimum_units[block] / factor);
      units += kPanelColumns;
    }
  }
  for (size_t g = 0; g < numbers.scales.size(); ++g) {
    std::byte* group = Group(row, static_cast<int64_t>(g));
    const float scale = numbers.scales[g];
    if (layout_.is_fp8) {
      reinterpret_cast<float*>(group)[column] = scale;
      continue;
    }
    const float minimum = layout_.has_minimum ? numbers.minimums[g] : 0.0F;
    if (has_blocks) {
      const size_t block = g / static_cast<size_t>(layout_.groups_per_block);
      auto* bytes = reinterpret_cast<int8_t*>(group) + column;
      bytes[0] = static_cast<int8_t>(MultipleOf(scale, numbers.scale_units[block]));
      if (!layout_.has_minimum) continue;
      bytes[kPanelColumns] = static_cast<int8_t>(MultipleOf(minimum, numbers.minimum_units[block]));
    } else {
      auto* halves = reinterpret_cast<fp16_t*>(group) + column;
      halves[0] = F32ToF16(scale / factor);
      if (!layout_.has_minimum) continue;
      halves[kPanelColumns] = F32ToF16(
          layout_.has_zero_points ? static_cast<float>(MultipleOf(minimum, scale)) : minimum / factor);
    }
  }
}

HostQuantizedWeight::GroupNumbers HostQuantizedWeight::NumbersOf(int64_t row, int64_t g) const {
  const int64_t column = row % kPanelColumns;
  const float factor = factors_[static_cast<size_t>(row)];
  const std::byte* group = Group(row, g);
  GroupNumbers numbers;
  if (layout_.is_fp8) {
    numbers.scale = reinterpret_cast<const float*>(group)[column];
    return numbers;
  }
  if (layout_.groups_per_block > 0) {
    const int64_t block = g / layout_.groups_per_block;
    const auto* units = reinterpret_cast<const fp16_t*>(Group(row, 0) - layout_.groups_offset) +
                        block * kPanelColumns * (layout_.has_minimum ? 2 : 1) + column;
    const auto* bytes = reinterpret_cast<const int8_t*>(group) + column;
    numbers.scale = F16ToF32(units[0]) * factor * static_cast<float>(bytes[0]);
    if (layout_.has_minimum) {
      numbers.minimum = F16ToF32(units[kPanelColumns]) * factor * static_cast<float>(bytes[kPanelColumns]);
    }
  } else {
    const auto* halves = reinterpret_cast<const fp16_t*>(group) + column;
    numbers.scale = F16ToF32(halves[0]) * factor;
    if (layout_.has_minimum) {
      numbers.minimum = F16ToF32(halves[kPanelColumns]) * (layout_.has_zero_points ? numbers.scale : factor);
    }
  }
  if (!layout_.has_minimum) numbers.minimum = numbers.scale * static_cast<float>(-format_.zero_code());
  return numbers;
}

void HostQuantizedWeight::LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) {
  CheckRows(row_begin, rows.num_rows);
  TANDEM_CHECK(rows.format == format_ && rows.cols == shape_.in_features, "rows of {} as {} for {} as {}",
               rows.cols, DescribeWeightFormat(rows.format), shape_.in_features,
               DescribeWeightFormat(format_));
  const int64_t codes_per_word = 32 / layout_.bits;
  const std::array<int, 8> shifts = CodeShifts(layout_);
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const int64_t row = row_begin + i;
    StoreNumbers(row, {.scales = OfRow(rows.scales, i, rows.num_rows),
                       .minimums = OfRow(rows.minimums, i, rows.num_rows),
                       .scale_units = OfRow(rows.scale_units, i, rows.num_rows),
                       .minimum_units = OfRow(rows.minimum_units, i, rows.num_rows)});
    const uint8_t* codes = rows.codes.data() + i * rows.cols;
    for (int64_t g = 0; g < layout_.num_groups; ++g) {
      auto* words = reinterpret_cast<uint32_t*>(Group(row, g) + layout_.words_offset) + row % kPanelColumns;
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
  const int64_t codes_per_word = 32 / layout_.bits;
  const std::array<int, 8> shifts = CodeShifts(layout_);
  const uint32_t mask = (uint32_t{1} << layout_.bits) - 1;
  for (int64_t g = 0; g < layout_.num_groups; ++g) {
    const GroupNumbers numbers = NumbersOf(row, g);
    const auto* words =
        reinterpret_cast<const uint32_t*>(Group(row, g) + layout_.words_offset) + row % kPanelColumns;
    for (int64_t k = 0; k < layout_.group_size; ++k) {
      const auto in_word = static_cast<size_t>(k % codes_per_word);
      const uint32_t code = words[k / codes_per_word * kPanelColumns] >> shifts[in_word] & mask;
      const float number =
          layout_.is_fp8 ? E4M3ToF32(static_cast<fp8_e4m3_t>(code)) : static_cast<float>(code);
      // The product is exact in fp64: one rounding, as the kernels have it.
      const auto value = static_cast<float>(static_cast<double>(number) * numbers.scale + numbers.minimum);
      *to++ = shape_.dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(value)) : value;
    }
  }
}

}  // namespace tandem
