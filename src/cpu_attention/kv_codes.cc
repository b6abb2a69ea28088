#include "cpu_attention/kv_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tandem {

void RotateHead(float* x, int64_t head_dim) {
  const int64_t size = RotationSize(head_dim);
  for (int64_t distance = 1; distance < size; distance *= 2) {
    for (int64_t first = 0; first < head_dim; first += 2 * distance) {
      for (int64_t i = first; i < first + distance; ++i) {
        const float sum = x[i] + x[i + distance];
        x[i + distance] = x[i] - x[i + distance];
        x[i] = sum;
      }
    }
  }
  const float factor = 1.0F / std::sqrt(static_cast<float>(size));
  for (int64_t i = 0; i < head_dim; ++i) x[i] *= factor;
}

bf16_t QuantizeHead(const float* x, int64_t count, int8_t* codes) {
  constexpr float kMaxCode = 127.0F;
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  const bf16_t scale = F32ToBF16(largest / kMaxCode);
  const float step = BF16ToF32(scale);
  if (step == 0.0F) {
    std::fill(codes, codes + count, int8_t{0});
    return 0;
  }
  // Not times the reciprocal: codes of what codes stand for must come out whole.
  for (int64_t i = 0; i < count; ++i) {
    // 1.5 * 2^23: the sum has no fraction bits left, and rounds to even. Its bits rather than a conversion:
    // slots that no token was written to may hold NaNs.
    constexpr float kMagic = 12582912.0F;
    const float code = std::min(std::max(x[i] / step, -kMaxCode), kMaxCode);
    codes[i] = static_cast<int8_t>(std::bit_cast<int32_t>(code + kMagic) - std::bit_cast<int32_t>(kMagic));
  }
  return scale;
}

}  // namespace tandem
