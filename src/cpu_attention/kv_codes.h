// K and V of one token and head as codes of 8 bits with a scale.
//
// K is rotated first: some channels of keys are tens of times larger than the others, and a scale for the
// token would leave few codes for those. q is rotated alike when it is read, so that scores stay the same.
// V is not: its channels are alike.
//
// The scale is the largest magnitude / 127, rounded to bf16. So the codes of what codes stand for are these
// codes again, with the same scale, and KV that goes from tier to tier and back is what it was: all of it in
// fp32 and fp16, and in bf16 all of V and of K nearly all (a large channel's rounding moves the others).
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace tandem {

// Channels that are rotated together: the largest power of two that divides head_dim.
constexpr int64_t RotationSize(int64_t head_dim) {
  return head_dim & -head_dim;
}

// What makes the rotation orthogonal: 1 / sqrt(RotationSize).
float RotationFactor(int64_t head_dim);

constexpr float kMaxCode = 127.0F;

// Of numbers the largest of which has this magnitude.
inline bf16_t ScaleOf(float largest) {
  return F32ToBF16(largest / kMaxCode);
}

// Of x / step to nearest even, step: a scale that is not 0. Kernels make the same codes of the same numbers.
constexpr int32_t NearestCode(float x, float step) {
  // 1.5 * 2^23: the sum has no fraction bits left, and rounds to even. Its bits rather than a conversion:
  // slots that no token was written to may hold NaNs. Not times the reciprocal: codes of what codes stand for
  // must come out whole.
  constexpr float kMagic = 12582912.0F;
  const float ratio = x / step;
  const float code = ratio < -kMaxCode ? -kMaxCode : ratio > kMaxCode ? kMaxCode : ratio;
  return std::bit_cast<int32_t>(code + kMagic) - std::bit_cast<int32_t>(kMagic);
}

// In place, x: [head_dim]. The Hadamard matrix of each RotationSize channels, made orthogonal: it is its own
// inverse.
void RotateHead(float* x, int64_t head_dim);

// codes[i] * scale is nearest to x[i], i < count; -127 to 127. Returns the scale, 0 where all of x is 0.
bf16_t QuantizeHead(const float* x, int64_t count, int8_t* codes);

}  // namespace tandem
