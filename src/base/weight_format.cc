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
  return {.encoding = std::max(a.encoding, b.encoding),
          .group_size = std::gcd(a.group_size, b.group_size),
          .has_minimum = a.has_minimum || b.has_minimum};
}

int64_t QuantizedBytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  const int64_t group_bytes = format.has_integers() ? (format.has_minimum ? 4 : 2) : 4;
  return rows * (cols * format.bits() / 8 + cols / format.group_size * group_bytes);
}

std::string DescribeWeightFormat(const WeightFormat& format) {
  if (!format.is_quantized()) return "float";
  return fmt::format("{}{}, groups of {}{}", format.has_integers() ? "int" : "fp", format.bits(),
                     format.group_size, format.has_minimum ? " with minimum" : "");
}

}  // namespace tandem
