#include "base/weight_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tandem {

int WeightFormat::bits() const {
  TANDEM_CHECK(is_quantized(), "bits of a code of floats");
  return encoding == WeightEncoding::kInt4 ? 4 : 8;
}

WeightFormat CommonWeightFormat(const WeightFormat& a, const WeightFormat& b) {
  if (!a.is_quantized() || a.has_integers() != b.has_integers() || !b.is_quantized()) return {};
  WeightFormat common = {.encoding = std::max(a.encoding, b.encoding),
                         .group_size = std::gcd(a.group_size, b.group_size),
                         .has_minimum = a.has_minimum || b.has_minimum};
  if (a.block_size > 0 || b.block_size > 0) {
    // A scale that is a number of its own is the unit of a block as large as its group.
    const auto block_of = [](const WeightFormat& format) {
      return format.block_size > 0 ? format.block_size : format.group_size;
    };
    common.block_size = std::gcd(block_of(a), block_of(b));
  }
  const auto can_have_zero_point = [](const WeightFormat& format) {
    return format.has_zero_points || !format.has_minimum;
  };
  common.has_zero_points =
      common.has_minimum && common.block_size == 0 && can_have_zero_point(a) && can_have_zero_point(b);
  return common;
}

int64_t QuantizedBytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  const int64_t numbers_a_group = format.has_minimum ? 2 : 1;
  const int64_t number_bytes = !format.has_integers() ? 4 : format.block_size > 0 ? 1 : 2;
  const int64_t of_groups = cols / format.group_size * numbers_a_group * number_bytes;
  const int64_t of_blocks = format.block_size > 0 ? cols / format.block_size * numbers_a_group * 2 : 0;
  return rows * (cols * format.bits() / 8 + of_groups + of_blocks);
}

std::string DescribeWeightFormat(const WeightFormat& format) {
  if (!format.is_quantized()) return "float";
  return fmt::format("{}{}, groups of {}{}{}", format.has_integers() ? "int" : "fp", format.bits(),
                     format.group_size,
                     format.has_zero_points ? " with zero point"
                     : format.has_minimum   ? " with minimum"
                                            : "",
                     format.block_size > 0 ? fmt::format(" in blocks of {}", format.block_size) : "");
}

}  // namespace tandem
