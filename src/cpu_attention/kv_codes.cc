#include "cpu_attention/kv_codes.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

float LargestOf(const float* x, int64_t count) {
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

}  // namespace

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

bf16_t EncodeHead(KvCode code, bool is_key, const float* x, int64_t count, uint8_t* bytes) {
  const bf16_t scale = ScaleOf(code, LargestOf(x, count));
  const float step = BF16ToF32(scale);
  for (int64_t i = 0; i < count; ++i) bytes[i] = ByteOf(code, is_key, x[i], step);
  return scale;
}

void RoundHeadToFp8(bool is_key, float* x, int64_t head_dim) {
  if (is_key) RotateHead(x, head_dim);
  const float step = StepOfE4M3(LargestOf(x, head_dim));
  for (int64_t i = 0; i < head_dim; ++i)
    x[i] = NumberOf(KvCode::kE4M3, is_key, ByteOf(KvCode::kE4M3, is_key, x[i], step)) * step;
  if (is_key) RotateHead(x, head_dim);
}

}  // namespace tandem
