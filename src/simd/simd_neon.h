// 4 lanes: NEON, with BF16 where the file is compiled for it. Included by simd.h only.
#pragma once

#include "simd/simd_prelude.h"

#if defined(TANDEM_NEON)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

constexpr int kLanes = 4;
constexpr int kNumVectorRegisters = 32;
using F32V = float32x4_t;
using PairV = uint32x4_t;
using I32V = int32x4_t;

TANDEM_SIMD_INLINE F32V Zero() {
  return vdupq_n_f32(0.0F);
}
TANDEM_SIMD_INLINE F32V Set(float value) {
  return vdupq_n_f32(value);
}
TANDEM_SIMD_INLINE F32V Load(const float* p) {
  return vld1q_f32(p);
}
TANDEM_SIMD_INLINE void Store(float* p, F32V v) {
  vst1q_f32(p, v);
}
TANDEM_SIMD_INLINE F32V Add(F32V a, F32V b) {
  return vaddq_f32(a, b);
}
TANDEM_SIMD_INLINE F32V Sub(F32V a, F32V b) {
  return vsubq_f32(a, b);
}
TANDEM_SIMD_INLINE F32V Mul(F32V a, F32V b) {
  return vmulq_f32(a, b);
}
TANDEM_SIMD_INLINE F32V Div(F32V a, F32V b) {
  return vdivq_f32(a, b);
}
// The number, where the other one is none.
TANDEM_SIMD_INLINE F32V Max(F32V a, F32V b) {
  return vmaxnmq_f32(a, b);
}
TANDEM_SIMD_INLINE F32V Min(F32V a, F32V b) {
  return vminnmq_f32(a, b);
}
TANDEM_SIMD_INLINE F32V Fma(F32V a, F32V b, F32V c) {
  return vfmaq_f32(c, a, b);
}
TANDEM_SIMD_INLINE F32V Round(F32V a) {
  return vrndnq_f32(a);
}
TANDEM_SIMD_INLINE F32V Scale(F32V a, F32V n) {
  const I32V exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}
TANDEM_SIMD_INLINE F32V KeepIfNotLess(F32V a, F32V bound, F32V value) {
  return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(a, bound), vreinterpretq_u32_f32(value)));
}
TANDEM_SIMD_INLINE bool AnyGreater(F32V a, F32V b) {
  return vmaxvq_u32(vcgtq_f32(a, b)) != 0;
}
TANDEM_SIMD_INLINE bool AnyNotLess(F32V a, F32V b) {
  return vmaxvq_u32(vcgeq_f32(a, b)) != 0;
}
TANDEM_SIMD_INLINE float SumLanes(F32V v) {
  const float32x2_t halves = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vpadds_f32(halves);
}
TANDEM_SIMD_INLINE float MaxLane(F32V v) {
  return vmaxnmvq_f32(v);
}

TANDEM_SIMD_INLINE F32V LoadBf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
TANDEM_SIMD_INLINE void StoreBf16(uint16_t* p, F32V v) {
  const PairV bits = vreinterpretq_u32_f32(v);
  const PairV odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const PairV rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  // A comparison with itself fails for what is no number.
  vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, vdupq_n_u32(0x7fc00000)), 16));
}

TANDEM_SIMD_INLINE F32V LoadFp16(const Fp16* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))));
}
TANDEM_SIMD_INLINE F32V LoadInt8(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  const int16x8_t halves = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)));
}
TANDEM_SIMD_INLINE void StoreFp16(Fp16* p, F32V v) {
  vst1_u16(reinterpret_cast<uint16_t*>(p), vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  return vreinterpretq_u32_u16(vld1q_u16(p));
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return vdupq_n_u32(pair);
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return vandq_u32(a, b);
}
TANDEM_SIMD_INLINE PairV ShiftRight(PairV a, unsigned count) {
  return a >> count;
}
TANDEM_SIMD_INLINE PairV ShiftLeft(PairV a, unsigned count) {
  return a << count;
}
TANDEM_SIMD_INLINE PairV OrPairs(PairV a, PairV b) {
  return vorrq_u32(a, b);
}
TANDEM_SIMD_INLINE F32V FromBits(PairV a) {
  return vreinterpretq_f32_u32(a);
}
TANDEM_SIMD_INLINE PairV ToBits(F32V a) {
  return vreinterpretq_u32_f32(a);
}
TANDEM_SIMD_INLINE F32V FromInts(I32V a) {
  return vcvtq_f32_s32(a);
}
TANDEM_SIMD_INLINE F32V FromInts(PairV a) {
  return vcvtq_f32_s32(vreinterpretq_s32_u32(a));
}
// Rounded.
TANDEM_SIMD_INLINE I32V ToInts(F32V a) {
  return vcvtnq_s32_f32(a);
}
TANDEM_SIMD_INLINE I32V AddInts(I32V a, I32V b) {
  return vaddq_s32(a, b);
}
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return vreinterpretq_f32_u32(vshlq_n_u32(a, 16));
}
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return vreinterpretq_f32_u32(vandq_u32(a, vdupq_n_u32(0xffff0000U)));
}

#if defined(TANDEM_SIMD_BF16)
// The processor rounds sums of two products to odd and takes denormals for zero.
TANDEM_SIMD_INLINE F32V DotPairs(F32V acc, PairV a, PairV b) {
  return vbfdotq_f32(acc, vreinterpretq_bf16_u32(a), vreinterpretq_bf16_u32(b));
}
// By the processor's own instruction. Returns what was stored.
TANDEM_SIMD_INLINE F32V StoreNativeBf16(uint16_t* p, F32V v) {
  const uint16x4_t rounded = vreinterpret_u16_bf16(vcvt_bf16_f32(v));
  vst1_u16(p, rounded);
  return vreinterpretq_f32_u32(vshll_n_u16(rounded, 16));
}
#endif

}  // namespace
}  // namespace tandem

#endif
