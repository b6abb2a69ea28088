// Any processor: 4 lanes of the compiler's 16-byte vectors. Included by simd.h only.
#pragma once

#include "simd/simd_prelude.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

constexpr int kLanes = 4;
constexpr int kNumVectorRegisters = 16;
using F32V = float __attribute__((vector_size(16)));
using PairV = uint32_t __attribute__((vector_size(16)));
using I32V = int32_t __attribute__((vector_size(16)));

TANDEM_SIMD_INLINE F32V Zero() {
  return F32V{};
}
TANDEM_SIMD_INLINE F32V Set(float value) {
  return F32V{value, value, value, value};
}
TANDEM_SIMD_INLINE F32V Load(const float* p) {
  F32V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TANDEM_SIMD_INLINE void Store(float* p, F32V v) {
  std::memcpy(p, &v, sizeof(v));
}
TANDEM_SIMD_INLINE F32V Add(F32V a, F32V b) {
  return a + b;
}
TANDEM_SIMD_INLINE F32V Sub(F32V a, F32V b) {
  return a - b;
}
TANDEM_SIMD_INLINE F32V Mul(F32V a, F32V b) {
  return a * b;
}
TANDEM_SIMD_INLINE F32V Div(F32V a, F32V b) {
  return a / b;
}
TANDEM_SIMD_INLINE F32V Select(I32V mask, F32V a, F32V b) {
  return (F32V)((mask & (I32V)a) | (~mask & (I32V)b));  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE F32V Max(F32V a, F32V b) {
  return Select(a > b, a, b);
}
TANDEM_SIMD_INLINE F32V Min(F32V a, F32V b) {
  return Select(a < b, a, b);
}
// Two roundings here: without hardware support one would cost a library call a lane.
TANDEM_SIMD_INLINE F32V Fma(F32V a, F32V b, F32V c) {
  return a * b + c;
}
// |a| < 2^22.
TANDEM_SIMD_INLINE F32V Round(F32V a) {
  const F32V magic = Set(12582912.0F);  // 1.5 * 2^23: the sum has no fraction bits left
  volatile F32V sum = a + magic;        // the compiler must not cancel the constants
  return sum - magic;
}
TANDEM_SIMD_INLINE F32V Scale(F32V a, F32V n) {
  const I32V exponent = __builtin_convertvector(n, I32V) + 127;
  return a * (F32V)(exponent << 23);  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE F32V KeepIfNotLess(F32V a, F32V bound, F32V value) {
  return (F32V)((a >= bound) & (I32V)value);  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE bool AnyGreater(F32V a, F32V b) {
  const I32V mask = a > b;
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}
TANDEM_SIMD_INLINE bool AnyNotLess(F32V a, F32V b) {
  const I32V mask = a >= b;
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}
TANDEM_SIMD_INLINE float SumLanes(F32V v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
TANDEM_SIMD_INLINE float MaxLane(F32V v) {
  const float a = v[0] > v[1] ? v[0] : v[1];
  const float b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}

TANDEM_SIMD_INLINE F32V LoadBf16(const uint16_t* p) {
  const PairV bits = {p[0], p[1], p[2], p[3]};
  return (F32V)(bits << 16);  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE void StoreBf16(uint16_t* p, F32V v) {
  const PairV bits = (PairV)v;  // NOLINT(google-readability-casting)
  const PairV rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  uint16_t halves[4];
  for (int i = 0; i < 4; ++i) halves[i] = static_cast<uint16_t>(v[i] == v[i] ? rounded[i] : 0x7fc0U);
  std::memcpy(p, halves, sizeof(halves));
}

// Halves are shifted into place as if they were floats with too small an exponent; the product puts it right,
// denormals included.
TANDEM_SIMD_INLINE F32V LoadFp16(const Fp16* p) {
  uint16_t halves[4];
  std::memcpy(halves, p, sizeof(halves));
  const PairV bits = {halves[0], halves[1], halves[2], halves[3]};
  const PairV magnitude = (bits & 0x7fffU) << 13;
  const F32V scaled = (F32V)magnitude * Set(0x1p112F);     // NOLINT(google-readability-casting)
  const PairV special = (PairV)(scaled >= Set(65536.0F));  // NOLINT(google-readability-casting)
  const PairV sign = (bits & 0x8000U) << 16;
  return (F32V)((PairV)scaled | (special & 0x7f800000U) | sign);  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE F32V LoadInt8(const int8_t* p) {
  return F32V{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
              static_cast<float>(p[3])};
}
// Rounds to nearest even.
TANDEM_SIMD_INLINE void StoreFp16(Fp16* p, F32V v) {
  for (int i = 0; i < 4; ++i) {
    uint32_t bits;
    const float lane = v[i];
    std::memcpy(&bits, &lane, sizeof(bits));
    const uint32_t sign = (bits >> 16) & 0x8000U;
    bits &= 0x7fffffffU;
    uint32_t half;
    if (bits > 0x7f800000U) {
      half = 0x7e00U;
    } else if (bits >= 0x477ff000U) {
      half = 0x7c00U;
    } else if (bits < 0x38800000U) {  // a denormal half: the unit is 2^-24
      float magnitude;
      std::memcpy(&magnitude, &bits, sizeof(magnitude));
      volatile float sum = magnitude + 0.5F;  // the last bit of 0.5F is 2^-24
      const float rounded = sum;
      std::memcpy(&half, &rounded, sizeof(half));
      half -= 0x3f000000U;
    } else {
      half = (bits - 0x38000000U + 0xfffU + ((bits >> 13) & 1U)) >> 13;
    }
    const auto stored = static_cast<uint16_t>(half | sign);
    std::memcpy(p + i, &stored, sizeof(stored));
  }
}

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  PairV v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return PairV{pair, pair, pair, pair};
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return a & b;
}
TANDEM_SIMD_INLINE PairV ShiftRight(PairV a, unsigned count) {
  return a >> count;
}
TANDEM_SIMD_INLINE PairV ShiftLeft(PairV a, unsigned count) {
  return a << count;
}
TANDEM_SIMD_INLINE PairV OrPairs(PairV a, PairV b) {
  return a | b;
}
TANDEM_SIMD_INLINE F32V FromBits(PairV a) {
  return (F32V)a;  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE PairV ToBits(F32V a) {
  return (PairV)a;  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE F32V FromInts(PairV a) {
  return __builtin_convertvector((I32V)a, F32V);  // NOLINT(google-readability-casting)
}
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return (F32V)(a << 16);
}  // NOLINT
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return (F32V)(a & 0xffff0000U);
}  // NOLINT

}  // namespace
}  // namespace tandem
