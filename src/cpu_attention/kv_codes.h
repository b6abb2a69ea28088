// K and V of one token and head as codes of 8 bits with a scale. Kernels of both backends make the same codes
// of the same numbers.
//
// K is rotated first: some channels of keys are tens of times larger than the others, and often the same ones
// of queries. A scale for the token would leave the others few integers, and floats would err most where it
// counts most. q is rotated alike when it is read, or K back, so that scores stay the same. V is not rotated:
// its channels are alike.
//
// kInt8: integers from -127 to 127. The scale is the largest magnitude / 127, rounded to bf16.
// kE4M3: floats of four significant bits. The scale is a power of two that brings the largest magnitude near
// to 448, so that a code and its scale are a float of any type exactly.
//
// The codes of what codes stand for are these codes again, with the same scale, and KV that goes from tier to
// tier and back is what it was: all of it in fp32; of int8 in fp16 too; in bf16 all of V and of K nearly all
// (a large channel's rounding moves the others).
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "base/kv_layout.h"
#include "cpu_attention/kv_block.h"

namespace tandem {

enum class KvCode : uint8_t { kInt8, kE4M3 };

// CHECKs that it is one of codes.
inline KvCode KvCodeOf(const KvFormat& format) {
  TANDEM_CHECK(format.is_coded(), "codes of {}", KvFormatName(format));
  return format == KvFormat::Fp8() ? KvCode::kE4M3 : KvCode::kInt8;
}

// Channels that are rotated together: the largest power of two that divides head_dim.
constexpr int64_t RotationSize(int64_t head_dim) {
  return head_dim & -head_dim;
}

// What makes the rotation orthogonal: 1 / sqrt(RotationSize).
float RotationFactor(int64_t head_dim);

constexpr float kMaxCode = 127.0F;

// The power of two that numbers of fp8 count times, of numbers the largest of which has this magnitude. 0:
// they are too small, and become 0.
constexpr float StepOfE4M3(float largest) {
  constexpr float kLeast = 0x1p-100F;
  if (!(largest >= kLeast)) return 0.0F;
  // Up to 464 = 1.8125 * 2^8, which is half way to what would be next, 448 is nearest; a larger mantissa
  // wants the next power. So what codes stand for gets the same scale again, slightly rounded or not.
  constexpr uint32_t kBeyondLargest = 0x17ffffU;
  constexpr uint32_t kExponent = 0x7f800000U;
  return std::bit_cast<float>(((std::bit_cast<uint32_t>(largest) + kBeyondLargest) & kExponent) - (8U << 23));
}

// Of numbers the largest of which has this magnitude. 0: all codes are those of 0.
constexpr bf16_t ScaleOf(KvCode code, float largest) {
  return F32ToBF16(code == KvCode::kE4M3 ? StepOfE4M3(largest) : largest / kMaxCode);
}

// Of x / step to nearest even, step: a scale that is not 0.
constexpr int32_t NearestCode(float x, float step) {
  // 1.5 * 2^23: the sum has no fraction bits left, and rounds to even. Its bits rather than a conversion:
  // slots that no token was written to may hold NaNs. Not times the reciprocal: codes of what codes stand for
  // must come out whole.
  constexpr float kMagic = 12582912.0F;
  const float ratio = x / step;
  const float code = ratio < -kMaxCode ? -kMaxCode : ratio > kMaxCode ? kMaxCode : ratio;
  return std::bit_cast<int32_t>(code + kMagic) - std::bit_cast<int32_t>(kMagic);
}

// The byte of a block that stands for the number nearest to x; step: its scale. K of kInt8 has
// kInt8KeyOffset added.
constexpr uint8_t ByteOf(KvCode code, bool is_key, float x, float step) {
  if (code == KvCode::kE4M3) return step == 0.0F ? uint8_t{0} : F32ToE4M3(x / step);
  const int32_t number = step == 0.0F ? 0 : NearestCode(x, step);
  return static_cast<uint8_t>(number + (is_key ? static_cast<int32_t>(kInt8KeyOffset) : 0));
}

// What a byte of a block stands for, to be multiplied by the scale.
constexpr float NumberOf(KvCode code, bool is_key, uint8_t byte) {
  if (code == KvCode::kE4M3) return E4M3ToF32(byte);
  return static_cast<float>(is_key ? byte - static_cast<int32_t>(kInt8KeyOffset)
                                   : static_cast<int32_t>(static_cast<int8_t>(byte)));
}

// In place, x: [head_dim]. The Hadamard matrix of each RotationSize channels, made orthogonal: it is its own
// inverse.
void RotateHead(float* x, int64_t head_dim);

// bytes[i] is that of x[i], i < count; K is rotated already. Returns the scale.
bf16_t EncodeHead(KvCode code, bool is_key, const float* x, int64_t count, uint8_t* bytes);

// In place: to what KvFormat::Fp8() would hold of it. Again, it stays.
void RoundHeadToFp8(bool is_key, float* x, int64_t head_dim);

}  // namespace tandem
