#include "cpu_attention/kv_codes.h"

#include <algorithm>
#include <cmath>

namespace tandem {

float RotationFactor(int64_t head_dim) {
  return 1.0F / std::sqrt(static_cast<float>(RotationSize(head_dim)));
}

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
  const float factor = RotationFactor(head_dim);
  for (int64_t i = 0; i < head_dim; ++i) x[i] *= factor;
}

bf16_t QuantizeHead(const float* x, int64_t count, int8_t* codes) {
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  const bf16_t scale = ScaleOf(largest);
  const float step = BF16ToF32(scale);
  if (step == 0.0F) {
    std::fill(codes, codes + count, int8_t{0});
    return 0;
  }
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(NearestCode(x[i], step));
  return scale;
}

}  // namespace tandem
