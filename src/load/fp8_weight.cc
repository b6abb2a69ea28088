#include "load/fp8_weight.h"

#include <algorithm>
#include <numeric>

namespace tandem {

WeightFormat Fp8Weight::format() const {
  return Fp8Format(std::gcd(parts_.block_cols, parts_.codes.shape[1]));
}

Status Fp8Weight::Read(int64_t row_begin, int64_t num_rows, QuantizedRows* rows) const {
  constexpr uint8_t kNan = 0x7f;
  const int64_t cols = parts_.codes.shape[1];
  rows->Resize(format(), num_rows, cols);
  std::copy_n(parts_.codes.data + row_begin * cols, num_rows * cols, rows->codes.begin());
  const auto nan = std::ranges::find_if(rows->codes, [](uint8_t code) { return (code & 0x7fU) == kNan; });
  if (nan != rows->codes.end()) {
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor '{}' has a value that is no number in row {}",
                     parts_.codes.file, parts_.codes.name, row_begin + (nan - rows->codes.begin()) / cols);
  }
  const int64_t blocks_a_row = (cols + parts_.block_cols - 1) / parts_.block_cols;
  std::vector<float> of_block(static_cast<size_t>(blocks_a_row));
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t block_row = (row_begin + i) / parts_.block_rows;
    TANDEM_RETURN_IF_ERROR(
        ReadScales(parts_.scales, block_row * blocks_a_row, blocks_a_row, of_block.data()));
    for (int64_t g = 0; g < rows->num_groups(); ++g) {
      const int64_t block = g * rows->format.group_size / parts_.block_cols;
      rows->scales[static_cast<size_t>(i * rows->num_groups() + g)] = of_block[static_cast<size_t>(block)];
    }
  }
  return {};
}

}  // namespace tandem
