// 16 lanes. Included by simd.h only.
#pragma once

#include "simd/simd_prelude.h"

#if defined(__AVX512F__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

constexpr int kLanes = 16;
constexpr int kNumVectorRegisters = 32;
using F32V = __m512;
using PairV = __m512i;

TANDEM_SIMD_INLINE F32V Zero() {
  return _mm512_setzero_ps();
}
TANDEM_SIMD_INLINE F32V Set(float value) {
  return _mm512_set1_ps(value);
}
TANDEM_SIMD_INLINE F32V Load(const float* p) {
  return _mm512_loadu_ps(p);
}
TANDEM_SIMD_INLINE void Store(float* p, F32V v) {
  _mm512_storeu_ps(p, v);
}
TANDEM_SIMD_INLINE F32V Add(F32V a, F32V b) {
  return _mm512_add_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Sub(F32V a, F32V b) {
  return _mm512_sub_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Mul(F32V a, F32V b) {
  return _mm512_mul_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Div(F32V a, F32V b) {
  return _mm512_div_ps(a, b);
}
// b where a is NaN.
TANDEM_SIMD_INLINE F32V Max(F32V a, F32V b) {
  return _mm512_max_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Min(F32V a, F32V b) {
  return _mm512_min_ps(a, b);
}
// a * b + c with one rounding.
TANDEM_SIMD_INLINE F32V Fma(F32V a, F32V b, F32V c) {
  return _mm512_fmadd_ps(a, b, c);
}
TANDEM_SIMD_INLINE F32V Round(F32V a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n; n integral, -126 .. 127.
TANDEM_SIMD_INLINE F32V Scale(F32V a, F32V n) {
  return _mm512_scalef_ps(a, n);
}
// value where a >= bound, else 0 (also where a is NaN).
TANDEM_SIMD_INLINE F32V KeepIfNotLess(F32V a, F32V bound, F32V value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, bound, _CMP_GE_OQ), value);
}
TANDEM_SIMD_INLINE bool AnyGreater(F32V a, F32V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
// Whether any lane of a is >= that of b.
TANDEM_SIMD_INLINE bool AnyNotLess(F32V a, F32V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0;
}
TANDEM_SIMD_INLINE float SumLanes(F32V v) {
  return _mm512_reduce_add_ps(v);
}
TANDEM_SIMD_INLINE float MaxLane(F32V v) {
  return _mm512_reduce_max_ps(v);
}

TANDEM_SIMD_INLINE F32V LoadBf16(const uint16_t* p) {
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
}
TANDEM_SIMD_INLINE void StoreBf16(uint16_t* p, F32V v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}

TANDEM_SIMD_INLINE F32V LoadFp16(const Fp16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TANDEM_SIMD_INLINE F32V LoadInt8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
TANDEM_SIMD_INLINE void StoreFp16(Fp16* p, F32V v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  return _mm512_loadu_si512(p);
}
TANDEM_SIMD_INLINE void StorePairs(uint16_t* p, PairV v) {
  _mm512_storeu_si512(p, v);
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return _mm512_set1_epi32(static_cast<int>(pair));
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return _mm512_and_si512(a, b);
}
// Of every lane as an unsigned number.
TANDEM_SIMD_INLINE PairV ShiftRight(PairV a, unsigned count) {
  return _mm512_srli_epi32(a, count);
}
TANDEM_SIMD_INLINE PairV ShiftLeft(PairV a, unsigned count) {
  return _mm512_slli_epi32(a, count);
}
TANDEM_SIMD_INLINE PairV OrPairs(PairV a, PairV b) {
  return _mm512_or_si512(a, b);
}
// Lanes as bits of floats.
TANDEM_SIMD_INLINE F32V FromBits(PairV a) {
  return _mm512_castsi512_ps(a);
}
TANDEM_SIMD_INLINE PairV ToBits(F32V a) {
  return _mm512_castps_si512(a);
}
// Lanes as signed numbers.
TANDEM_SIMD_INLINE F32V FromInts(PairV a) {
  return _mm512_cvtepi32_ps(a);
}
// acc + a.low * b.low + a.high * b.high in every lane; halves and lanes are signed numbers.
TANDEM_SIMD_INLINE PairV DotIntPairs(PairV acc, PairV a, PairV b) {
  return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
// Lanes as signed numbers, rounded.
TANDEM_SIMD_INLINE PairV ToInts(F32V a) {
  return _mm512_cvtps_epi32(a);
}
TANDEM_SIMD_INLINE PairV AddInts(PairV a, PairV b) {
  return _mm512_add_epi32(a, b);
}
// Lanes that fit as kLanes numbers of 16 bits.
TANDEM_SIMD_INLINE void StoreInt16(uint16_t* p, PairV a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
}
#if defined(__AVX512BF16__)
TANDEM_SIMD_INLINE F32V DotPairs(F32V acc, PairV a, PairV b) {
  return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);  // NOLINT(google-readability-casting)
}
// By the processor's own instruction, which takes denormals for zero. Returns what was stored.
TANDEM_SIMD_INLINE F32V StoreNativeBf16(uint16_t* p, F32V v) {
  const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(v);  // NOLINT(google-readability-casting)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
}
#endif
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
}
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}

}  // namespace
}  // namespace tandem

#endif
