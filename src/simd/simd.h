// Vectors of fp32, fp16 and of bf16 pairs for the instruction set this file is compiled for.
//
// Only kernel files include this, each compiled with its own flags (tandem_kernel_sources, which defines
// TANDEM_NEON too). Everything is in
// an unnamed namespace: an inline function with external linkage would be merged across files by the linker,
// and a machine without AVX-512 could end up with its AVX-512 copy. For the same reason kernel files use no
// inline or template functions of other headers.
#pragma once

#include "simd/simd_prelude.h"

#if defined(__AVX512F__) && !defined(TANDEM_VECTORS_OF_256_BITS)
#include "simd/simd_avx512.h"
#elif defined(__AVX2__)
#include "simd/simd_avx2.h"
#elif defined(TANDEM_NEON)
#include "simd/simd_neon.h"
#else
#include "simd/simd_portable.h"
#endif

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see above

#if !defined(TANDEM_SIMD_BF16)
// acc + a.low * b.low + a.high * b.high in every lane.
TANDEM_SIMD_INLINE F32V DotPairs(F32V acc, PairV a, PairV b) {
  return Fma(HighHalves(a), HighHalves(b), Fma(LowHalves(a), LowHalves(b), acc));
}
#endif

// Two adjacent bf16 values as one 32-bit word, the first in the low half.
TANDEM_SIMD_INLINE uint32_t PairAt(const uint16_t* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return pair;
}

TANDEM_SIMD_INLINE float ScalarFromBf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
TANDEM_SIMD_INLINE uint16_t ScalarToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0U;
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// One interface over rows of all types.
TANDEM_SIMD_INLINE F32V LoadRow(const float* p) {
  return Load(p);
}
TANDEM_SIMD_INLINE F32V LoadRow(const uint16_t* p) {
  return LoadBf16(p);
}
TANDEM_SIMD_INLINE F32V LoadRow(const Fp16* p) {
  return LoadFp16(p);
}
TANDEM_SIMD_INLINE void StoreRow(Fp16* p, F32V v) {
  StoreFp16(p, v);
}
TANDEM_SIMD_INLINE void StoreRow(float* p, F32V v) {
  Store(p, v);
}
TANDEM_SIMD_INLINE void StoreRow(uint16_t* p, F32V v) {
  StoreBf16(p, v);
}
TANDEM_SIMD_INLINE float LoadScalar(const float* p) {
  return *p;
}
TANDEM_SIMD_INLINE float LoadScalar(const uint16_t* p) {
  return ScalarFromBf16(*p);
}
TANDEM_SIMD_INLINE void StoreScalar(float* p, float v) {
  *p = v;
}
TANDEM_SIMD_INLINE void StoreScalar(uint16_t* p, float v) {
  *p = ScalarToBf16(v);
}

// e^x, relative error about 1e-7; 0 below -87.3 (also for -inf and NaN); saturates above 88.
TANDEM_SIMD_INLINE F32V Exp(F32V x) {
  const F32V lowest = Set(-87.3F);
  const F32V clamped = Max(Min(x, Set(88.0F)), lowest);
  const F32V n = Round(Mul(clamped, Set(1.44269504F)));
  // ln 2 in two parts, so that n * ln 2 loses no bits.
  const F32V r = Fma(n, Set(2.12194440e-4F), Fma(n, Set(-0.693359375F), clamped));
  F32V p = Set(1.9875691500e-4F);
  p = Fma(p, r, Set(1.3981999507e-3F));
  p = Fma(p, r, Set(8.3334519073e-3F));
  p = Fma(p, r, Set(4.1665795894e-2F));
  p = Fma(p, r, Set(1.6666665459e-1F));
  p = Fma(p, r, Set(5.0000001201e-1F));
  const F32V e = Add(Fma(Mul(r, r), p, r), Set(1.0F));
  return KeepIfNotLess(x, lowest, Scale(e, n));
}

}  // namespace
}  // namespace tandem
