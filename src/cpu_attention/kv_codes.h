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

#include <cstdint>

#include "base/dtype.h"

namespace tandem {

// Channels that are rotated together: the largest power of two that divides head_dim.
constexpr int64_t RotationSize(int64_t head_dim) {
  return head_dim & -head_dim;
}

// In place, x: [head_dim]. The Hadamard matrix of each RotationSize channels, made orthogonal: it is its own
// inverse.
void RotateHead(float* x, int64_t head_dim);

// codes[i] * scale is nearest to x[i], i < count; -127 to 127. Returns the scale, 0 where all of x is 0.
bf16_t QuantizeHead(const float* x, int64_t count, int8_t* codes);

}  // namespace tandem
