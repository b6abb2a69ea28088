// 8 lanes: AVX2, or AVX-512 in vectors of 256 bits. Included by simd.h only.
#pragma once

#include "simd/simd_prelude.h"

#if defined(__AVX2__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see simd.h

constexpr int kLanes = 8;
#if defined(__AVX512VL__)
constexpr int kNumVectorRegisters = 32;
#else
constexpr int kNumVectorRegisters = 16;
#endif
using F32V = __m256;
using PairV = __m256i;

TANDEM_SIMD_INLINE F32V Zero() {
  return _mm256_setzero_ps();
}
TANDEM_SIMD_INLINE F32V Set(float value) {
  return _mm256_set1_ps(value);
}
TANDEM_SIMD_INLINE F32V Load(const float* p) {
  return _mm256_loadu_ps(p);
}
TANDEM_SIMD_INLINE void Store(float* p, F32V v) {
  _mm256_storeu_ps(p, v);
}
TANDEM_SIMD_INLINE F32V Add(F32V a, F32V b) {
  return _mm256_add_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Sub(F32V a, F32V b) {
  return _mm256_sub_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Mul(F32V a, F32V b) {
  return _mm256_mul_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Div(F32V a, F32V b) {
  return _mm256_div_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Max(F32V a, F32V b) {
  return _mm256_max_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Min(F32V a, F32V b) {
  return _mm256_min_ps(a, b);
}
TANDEM_SIMD_INLINE F32V Fma(F32V a, F32V b, F32V c) {
  return _mm256_fmadd_ps(a, b, c);
}
TANDEM_SIMD_INLINE F32V Round(F32V a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TANDEM_SIMD_INLINE F32V Scale(F32V a, F32V n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
TANDEM_SIMD_INLINE F32V KeepIfNotLess(F32V a, F32V bound, F32V value) {
  return _mm256_and_ps(_mm256_cmp_ps(a, bound, _CMP_GE_OQ), value);
}
TANDEM_SIMD_INLINE bool AnyGreater(F32V a, F32V b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}
TANDEM_SIMD_INLINE bool AnyNotLess(F32V a, F32V b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0;
}
TANDEM_SIMD_INLINE float SumLanes(F32V v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
TANDEM_SIMD_INLINE float MaxLane(F32V v) {
  __m128 max = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  max = _mm_max_ps(max, _mm_movehl_ps(max, max));
  return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
}

TANDEM_SIMD_INLINE F32V LoadBf16(const uint16_t* p) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
TANDEM_SIMD_INLINE void StoreBf16(uint16_t* p, F32V v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

TANDEM_SIMD_INLINE F32V LoadFp16(const Fp16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TANDEM_SIMD_INLINE F32V LoadInt8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
TANDEM_SIMD_INLINE void StoreFp16(Fp16* p, F32V v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return _mm256_set1_epi32(static_cast<int>(pair));
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return _mm256_and_si256(a, b);
}
TANDEM_SIMD_INLINE PairV ShiftRight(PairV a, unsigned count) {
  return _mm256_srli_epi32(a, static_cast<int>(count));
}
TANDEM_SIMD_INLINE PairV ShiftLeft(PairV a, unsigned count) {
  return _mm256_slli_epi32(a, static_cast<int>(count));
}
TANDEM_SIMD_INLINE PairV OrPairs(PairV a, PairV b) {
  return _mm256_or_si256(a, b);
}
TANDEM_SIMD_INLINE F32V FromBits(PairV a) {
  return _mm256_castsi256_ps(a);
}
TANDEM_SIMD_INLINE PairV ToBits(F32V a) {
  return _mm256_castps_si256(a);
}
TANDEM_SIMD_INLINE F32V FromInts(PairV a) {
  return _mm256_cvtepi32_ps(a);
}
// acc + a.low * b.low + a.high * b.high in every lane; halves and lanes are signed numbers.
TANDEM_SIMD_INLINE PairV DotIntPairs(PairV acc, PairV a, PairV b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
// Lanes as signed numbers, rounded.
TANDEM_SIMD_INLINE PairV ToInts(F32V a) {
  return _mm256_cvtps_epi32(a);
}
TANDEM_SIMD_INLINE PairV AddInts(PairV a, PairV b) {
  return _mm256_add_epi32(a, b);
}
// Lanes that fit as kLanes numbers of 16 bits.
TANDEM_SIMD_INLINE void StoreInt16(uint16_t* p, PairV a) {
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
}
#if defined(__AVX512BF16__)
TANDEM_SIMD_INLINE F32V DotPairs(F32V acc, PairV a, PairV b) {
  return _mm256_dpbf16_ps(acc, (__m256bh)a, (__m256bh)b);  // NOLINT(google-readability-casting)
}
// By the processor's own instruction, which takes denormals for zero. Returns what was stored.
TANDEM_SIMD_INLINE F32V StoreNativeBf16(uint16_t* p, F32V v) {
  const __m128i rounded = (__m128i)_mm256_cvtneps_pbh(v);  // NOLINT(google-readability-casting)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), rounded);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(rounded), 16));
}
#endif
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
}
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

}  // namespace
}  // namespace tandem

#endif
