#include "base/quantized_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/dtype.h"
#include "base/hashed_uniform.h"

namespace tandem {
namespace {

// To the 11 significant bits of an fp16, whatever the exponent. Up: never to less.
float RoundTo11Bits(float value) {
  constexpr uint32_t kDropped = 13;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (uint32_t{1} << (kDropped - 1)) - 1 + ((bits >> kDropped) & 1U);
  return std::bit_cast<float>((bits + half) >> kDropped << kDropped);
}

void QuantizeWithMinimum(const float* values, int64_t count, int max_code, uint8_t* codes, float* scale,
                         float* minimum) {
  const auto [least, greatest] = std::minmax_element(values, values + count);
  *minimum = RoundTo11Bits(*least);
  *scale = RoundTo11Bits((*greatest - *least) / static_cast<float>(max_code));
  const float inverse = *scale == 0.0F ? 0.0F : 1.0F / *scale;
  for (int64_t i = 0; i < count; ++i) {
    const float code = std::nearbyint((values[i] - *minimum) * inverse);
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0F, static_cast<float>(max_code)));
  }
}

// The value of largest magnitude gets the one code that has no counterpart of the other sign, if that is
// nearer: a range of -8 .. 7 is used as a whole.
void QuantizeSymmetric(const float* values, int64_t count, int zero_code, uint8_t* codes, float* scale) {
  const float largest =
      *std::max_element(values, values + count, [](float a, float b) { return std::abs(a) < std::abs(b); });
  *scale = RoundTo11Bits(largest / static_cast<float>(-zero_code));
  const float inverse = *scale == 0.0F ? 0.0F : 1.0F / *scale;
  for (int64_t i = 0; i < count; ++i) {
    const float code = std::nearbyint(values[i] * inverse) + static_cast<float>(zero_code);
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0F, static_cast<float>(2 * zero_code - 1)));
  }
}

void QuantizeFp8(const float* values, int64_t count, uint8_t* codes, float* scale) {
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  *scale = largest / kLargestE4M3;
  // A quotient, not the inverse: that of a small scale would be infinite.
  for (int64_t i = 0; i < count; ++i) codes[i] = *scale == 0.0F ? 0 : F32ToE4M3(values[i] / *scale);
}

void HashedFp8Codes(uint64_t seed, uint64_t first, std::vector<uint8_t>* codes) {
  for (size_t i = 0; i < codes->size(); ++i) {
    const auto code = static_cast<uint8_t>(HashedBits(seed, first + i) >> 56);
    (*codes)[i] = (code & 0x7fU) == 0x7fU ? static_cast<uint8_t>(code - 1) : code;
  }
}

}  // namespace

void QuantizedRows::Resize(const WeightFormat& new_format, int64_t new_num_rows, int64_t new_cols) {
  TANDEM_CHECK(new_format.group_size > 0 && new_cols % new_format.group_size == 0,
               "groups of {} in rows of {}", new_format.group_size, new_cols);
  TANDEM_CHECK(
      new_format.block_size == 0 ||
          (new_format.block_size % new_format.group_size == 0 && new_cols % new_format.block_size == 0),
      "blocks of {} of groups of {} in rows of {}", new_format.block_size, new_format.group_size, new_cols);
  format = new_format;
  num_rows = new_num_rows;
  cols = new_cols;
  codes.resize(static_cast<size_t>(num_rows * cols));
  scales.resize(static_cast<size_t>(num_rows * num_groups()));
  minimums.resize(format.has_minimum ? scales.size() : 0);
  scale_units.resize(static_cast<size_t>(num_rows * num_blocks()));
  minimum_units.resize(format.has_minimum ? scale_units.size() : 0);
}

void DequantizeRows(const QuantizedRows& rows, float* dst) {
  const int64_t group_size = rows.format.group_size;
  if (!rows.format.has_integers()) {
    for (size_t i = 0; i < rows.codes.size(); ++i)
      dst[i] = rows.scales[i / static_cast<size_t>(group_size)] * E4M3ToF32(rows.codes[i]);
    return;
  }
  const int zero = rows.format.has_minimum ? 0 : rows.format.zero_code();
  for (size_t group = 0; group < rows.scales.size(); ++group) {
    const float scale = rows.scales[group];
    const uint8_t* codes = rows.codes.data() + static_cast<int64_t>(group) * group_size;
    float* to = dst + static_cast<int64_t>(group) * group_size;
    const float minimum = rows.format.has_minimum ? rows.minimums[group] : 0.0F;
    for (int64_t i = 0; i < group_size; ++i)
      to[i] = static_cast<float>(static_cast<double>(scale) * (codes[i] - zero) + minimum);
  }
}

QuantizedRows WidenRows(const QuantizedRows& rows, const WeightFormat& format) {
  TANDEM_CHECK(CommonWeightFormat(rows.format, format) == format, "{} does not hold {}",
               DescribeWeightFormat(format), DescribeWeightFormat(rows.format));
  QuantizedRows wide;
  wide.Resize(format, rows.num_rows, rows.cols);
  const bool had_minimum = rows.format.has_minimum;
  const bool keeps_codes = had_minimum || format.has_minimum || !format.has_integers();
  const int shift = keeps_codes ? 0 : format.zero_code() - rows.format.zero_code();
  std::transform(rows.codes.begin(), rows.codes.end(), wide.codes.begin(),
                 [shift](uint8_t code) { return static_cast<uint8_t>(code + shift); });
  const int64_t parts = rows.format.group_size / format.group_size;
  for (size_t group = 0; group < wide.scales.size(); ++group) {
    const size_t from = group / static_cast<size_t>(parts);
    wide.scales[group] = rows.scales[from];
    if (!format.has_minimum) continue;
    wide.minimums[group] =
        had_minimum ? rows.minimums[from] : rows.scales[from] * static_cast<float>(-rows.format.zero_code());
  }
  // Numbers of their own are the units of blocks that lie within their groups.
  const bool had_blocks = rows.format.block_size > 0;
  const std::vector<float>& scale_units = had_blocks ? rows.scale_units : rows.scales;
  const std::vector<float>& minimum_units = had_blocks ? rows.minimum_units : rows.minimums;
  const int64_t unit_size = had_blocks ? rows.format.block_size : rows.format.group_size;
  for (size_t block = 0; block < wide.scale_units.size(); ++block) {
    const size_t from = block / static_cast<size_t>(unit_size / format.block_size);
    wide.scale_units[block] = scale_units[from];
    if (!format.has_minimum) continue;
    wide.minimum_units[block] =
        had_minimum ? minimum_units[from] : scale_units[from] * static_cast<float>(-rows.format.zero_code());
  }
  return wide;
}

std::optional<WeightFormat> FormatOfColumns(const WeightFormat& format, int64_t cols, int64_t begin,
                                            int64_t count) {
  if (count == cols) return format;
  WeightFormat part = format;
  if (format.group_size == cols && format.block_size == 0) {
    part.group_size = count;
    return part;
  }
  const int64_t unit = std::max(format.group_size, format.block_size);
  if (begin % unit != 0 || count % unit != 0) return std::nullopt;
  return part;
}

QuantizedRows ColumnsOf(const QuantizedRows& rows, int64_t begin, int64_t count) {
  const std::optional<WeightFormat> format = FormatOfColumns(rows.format, rows.cols, begin, count);
  TANDEM_CHECK(format, "columns [{}, +{}) of rows of {} in {}", begin, count, rows.cols,
               DescribeWeightFormat(rows.format));
  QuantizedRows part;
  part.Resize(*format, rows.num_rows, count);
  const auto copy = [&](const auto& from, int64_t from_size, auto* to, int64_t to_size) {
    if (from_size == 0) return;
    // Of values that lie evenly in a row: one for so many columns.
    const int64_t first = begin * from_size / rows.cols;
    for (int64_t row = 0; row < rows.num_rows; ++row)
      std::copy_n(from.begin() + row * from_size + first, to_size, to->begin() + row * to_size);
  };
  copy(rows.codes, rows.cols, &part.codes, count);
  copy(rows.scales, rows.num_groups(), &part.scales, part.num_groups());
  if (format->has_minimum) copy(rows.minimums, rows.num_groups(), &part.minimums, part.num_groups());
  copy(rows.scale_units, rows.num_blocks(), &part.scale_units, part.num_blocks());
  if (format->has_minimum)
    copy(rows.minimum_units, rows.num_blocks(), &part.minimum_units, part.num_blocks());
  return part;
}

void QuantizeRows(const float* values, int64_t num_rows, int64_t cols, const WeightFormat& format,
                  QuantizedRows* rows) {
  TANDEM_CHECK(format.is_quantized(), "rounding to {}", DescribeWeightFormat(format));
  if (format.has_zero_points || format.block_size > 0) {
    WeightFormat plain = format;
    plain.has_minimum = format.has_minimum && !format.has_zero_points;
    plain.has_zero_points = false;
    plain.group_size = std::max(format.group_size, format.block_size);
    plain.block_size = 0;
    QuantizedRows found;
    QuantizeRows(values, num_rows, cols, plain, &found);
    *rows = WidenRows(found, format);
    return;
  }
  rows->Resize(format, num_rows, cols);
  for (size_t group = 0; group < rows->scales.size(); ++group) {
    const int64_t begin = static_cast<int64_t>(group) * format.group_size;
    uint8_t* codes = rows->codes.data() + begin;
    if (!format.has_integers()) {
      QuantizeFp8(values + begin, format.group_size, codes, &rows->scales[group]);
    } else if (format.has_minimum) {
      QuantizeWithMinimum(values + begin, format.group_size, 2 * format.zero_code() - 1, codes,
                          &rows->scales[group], &rows->minimums[group]);
    } else {
      QuantizeSymmetric(values + begin, format.group_size, format.zero_code(), codes, &rows->scales[group]);
    }
  }
}

void HashedRows(uint64_t seed, float bound, int64_t row_begin, int64_t num_rows, int64_t cols,
                const WeightFormat& format, QuantizedRows* rows) {
  TANDEM_CHECK(format.is_quantized() && !format.has_zero_points && format.block_size == 0,
               "random codes of {}", DescribeWeightFormat(format));
  rows->Resize(format, num_rows, cols);
  const int zero_code = format.zero_code();
  const auto first = static_cast<uint64_t>(row_begin * cols);
  if (format.has_integers()) {
    for (size_t i = 0; i < rows->codes.size(); ++i)
      rows->codes[i] = static_cast<uint8_t>(HashedBits(seed, first + i) >> (64 - format.bits()));
  } else {
    HashedFp8Codes(seed, first, &rows->codes);
  }
  // sqrt(3) times the standard deviation of the codes' values: that of uniform integers is their range's end.
  constexpr float kFp8Spread = 168.0F;
  const float spread = format.has_integers() ? static_cast<float>(zero_code) : kFp8Spread;
  // The power of two below bound / spread times 1 to 15 / 8.
  const float power = std::ldexp(1.0F, std::ilogb(bound / spread));
  const auto first_group = static_cast<uint64_t>(row_begin * rows->num_groups());
  for (size_t group = 0; group < rows->scales.size(); ++group) {
    const uint64_t eighths = 8 + HashedBits(~seed, first_group + group) % 8;
    rows->scales[group] = power * static_cast<float>(eighths) / 8.0F;
    if (format.has_minimum)
      rows->minimums[group] = rows->scales[group] * (0.5F - static_cast<float>(zero_code));
  }
}

}  // namespace tandem
