// Vectors of fp32 and of bf16 pairs for the instruction set this file is compiled for.
//
// Only kernel files include this, each compiled with its own flags (src/ops/CMakeLists.txt). Everything is in
// an unnamed namespace: an inline function with external linkage would be merged across files by the linker,
// and a machine without AVX-512 could end up with its AVX-512 copy. For the same reason kernel files use no
// inline or template functions of other headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define TANDEM_SIMD_INLINE [[gnu::always_inline]] inline

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see above

#if defined(__AVX512F__)

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

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  return _mm512_loadu_si512(p);
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return _mm512_set1_epi32(static_cast<int>(pair));
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return _mm512_and_si512(a, b);
}
#if defined(__AVX512BF16__)
TANDEM_SIMD_INLINE F32V DotPairs(F32V acc, PairV a, PairV b) {
  return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);  // NOLINT(google-readability-casting)
}
#else
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
}
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}
#endif

#elif defined(__AVX2__)

constexpr int kLanes = 8;
constexpr int kNumVectorRegisters = 16;
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

TANDEM_SIMD_INLINE PairV LoadPairs(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
TANDEM_SIMD_INLINE PairV SetPair(uint32_t pair) {
  return _mm256_set1_epi32(static_cast<int>(pair));
}
TANDEM_SIMD_INLINE PairV AndPairs(PairV a, PairV b) {
  return _mm256_and_si256(a, b);
}
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
}
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

#else  // any processor: the compiler's 16-byte vectors

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
TANDEM_SIMD_INLINE F32V LowHalves(PairV a) {
  return (F32V)(a << 16);
}  // NOLINT
TANDEM_SIMD_INLINE F32V HighHalves(PairV a) {
  return (F32V)(a & 0xffff0000U);
}  // NOLINT

#endif

#if !defined(__AVX512BF16__)
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

// One interface over fp32 and bf16 rows.
TANDEM_SIMD_INLINE F32V LoadRow(const float* p) {
  return Load(p);
}
TANDEM_SIMD_INLINE F32V LoadRow(const uint16_t* p) {
  return LoadBf16(p);
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
