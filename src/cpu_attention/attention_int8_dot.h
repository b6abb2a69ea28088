// Dot products of 8-bit codes of the cache with numbers of 16 bits, exact in 32 bits. Compiled once an
// instruction set (see simd.h).
//
// Codes come in fours (four values of d for K, four tokens for V), one four a lane. A *quad* is what meets
// them: four numbers of 16 bits in 8 bytes. VNNI and NEON's dot products multiply 8 by 8 bits, so there it is
// two digits, four high and four low ones; elsewhere codes are widened as they are loaded.
#pragma once

#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kQuadBytes = 8;

#if defined(__AVX512F__) && !defined(TANDEM_VECTORS_OF_256_BITS)

using I32V = __m512i;
TANDEM_SIMD_INLINE I32V SetInt(int32_t value) {
  return _mm512_set1_epi32(value);
}
TANDEM_SIMD_INLINE I32V LoadInts(const int32_t* p) {
  return _mm512_loadu_si512(p);
}
TANDEM_SIMD_INLINE void StoreInts(int32_t* p, I32V v) {
  _mm512_storeu_si512(p, v);
}
TANDEM_SIMD_INLINE I32V SubInts(I32V a, I32V b) {
  return _mm512_sub_epi32(a, b);
}
TANDEM_SIMD_INLINE F32V ToFloats(I32V v) {
  return _mm512_cvtepi32_ps(v);
}

#elif defined(__AVX2__)

using I32V = __m256i;
TANDEM_SIMD_INLINE I32V SetInt(int32_t value) {
  return _mm256_set1_epi32(value);
}
TANDEM_SIMD_INLINE I32V LoadInts(const int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
TANDEM_SIMD_INLINE void StoreInts(int32_t* p, I32V v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
TANDEM_SIMD_INLINE I32V SubInts(I32V a, I32V b) {
  return _mm256_sub_epi32(a, b);
}
TANDEM_SIMD_INLINE F32V ToFloats(I32V v) {
  return _mm256_cvtepi32_ps(v);
}

#elif defined(TANDEM_NEON)

TANDEM_SIMD_INLINE I32V SetInt(int32_t value) {
  return vdupq_n_s32(value);
}
TANDEM_SIMD_INLINE void StoreInts(int32_t* p, I32V v) {
  vst1q_s32(p, v);
}
TANDEM_SIMD_INLINE I32V SubInts(I32V a, I32V b) {
  return vsubq_s32(a, b);
}
TANDEM_SIMD_INLINE F32V ToFloats(I32V v) {
  return vcvtq_f32_s32(v);
}

#else

TANDEM_SIMD_INLINE I32V SetInt(int32_t value) {
  return I32V{value, value, value, value};
}
TANDEM_SIMD_INLINE I32V LoadInts(const int32_t* p) {
  I32V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TANDEM_SIMD_INLINE void StoreInts(int32_t* p, I32V v) {
  std::memcpy(p, &v, sizeof(v));
}
TANDEM_SIMD_INLINE I32V AddInts(I32V a, I32V b) {
  return a + b;
}
TANDEM_SIMD_INLINE I32V SubInts(I32V a, I32V b) {
  return a - b;
}
TANDEM_SIMD_INLINE F32V ToFloats(I32V v) {
  return __builtin_convertvector(v, F32V);
}
// To the nearest, ties to even.
TANDEM_SIMD_INLINE I32V ToInts(F32V v) {
  return __builtin_convertvector(Round(v), I32V);
}

#endif

TANDEM_SIMD_INLINE int32_t SumIntLanes(I32V v) {
  int32_t lanes[kLanes];
  StoreInts(lanes, v);
  int32_t sum = 0;
#pragma GCC unroll 16
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}

// What codes of keys have added when they are loaded, of kInt8KeyOffset.
#if defined(TANDEM_NEON) && defined(__ARM_FEATURE_DOTPROD)
constexpr int32_t kLoadedKeyOffset = 0;
#else
constexpr int32_t kLoadedKeyOffset = 128;
#endif

#if defined(TANDEM_NEON_MATRIX)

// attention_int8_neon.h has kernels of its own. Of kLanes numbers, the high digits and the low ones, which
// have a sign.
TANDEM_SIMD_INLINE void StoreDigits(I32V numbers, int8_t* high, int8_t* low) {
  const int16x4_t rounded = vshrn_n_s32(AddInts(numbers, SetInt(128)), 8);
  const int8x16_t digits = vreinterpretq_s8_s16(vcombine_s16(rounded, vmovn_s32(numbers)));
  const int32x2_t words = vreinterpret_s32_s8(vget_low_s8(vuzp1q_s8(digits, digits)));
  std::memcpy(high, &words, 4);
  const int32_t last = vget_lane_s32(words, 1);
  std::memcpy(low, &last, 4);
}

#elif defined(TANDEM_NEON) && defined(__ARM_FEATURE_DOTPROD)

// kLanes fours of codes, with a sign.
struct CodeFours {
  int8x16_t codes;
};
// Sums of products, by digit.
struct QuadSum {
  I32V high;
  I32V low;
};
TANDEM_SIMD_INLINE QuadSum ZeroQuadSum() {
  return {SetInt(0), SetInt(0)};
}
TANDEM_SIMD_INLINE I32V Total(const QuadSum& sum) {
  return AddInts(vshlq_n_s32(sum.high, 8), sum.low);
}
TANDEM_SIMD_INLINE CodeFours LoadUnsigned(const uint8_t* p) {
  return {vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)))};
}
TANDEM_SIMD_INLINE CodeFours LoadSigned(const int8_t* p) {
  return {vld1q_s8(p)};
}
TANDEM_SIMD_INLINE void AddProducts(QuadSum& sum, const CodeFours& codes, const std::byte* quad) {
  const int8x8_t digits = vld1_s8(reinterpret_cast<const int8_t*>(quad));
  sum.high = vdotq_lane_s32(sum.high, codes.codes, digits, 0);
  sum.low = vdotq_lane_s32(sum.low, codes.codes, digits, 1);
}
// One quad: low digits have a sign.
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, I32V numbers) {
  const int16x4_t high = vshrn_n_s32(AddInts(numbers, SetInt(128)), 8);
  const int8x16_t digits = vreinterpretq_s8_s16(vcombine_s16(high, vmovn_s32(numbers)));
  vst1_s8(reinterpret_cast<int8_t*>(to), vget_low_s8(vuzp1q_s8(digits, digits)));
}

#elif defined(TANDEM_NEON)

// kLanes fours of codes, widened, by their places: the first of each four and the second, the third and the
// fourth.
struct CodeFours {
  int16x8_t first_two;
  int16x8_t last_two;
};
struct QuadSum {
  I32V lanes;
};
TANDEM_SIMD_INLINE QuadSum ZeroQuadSum() {
  return {SetInt(0)};
}
TANDEM_SIMD_INLINE I32V Total(const QuadSum& sum) {
  return sum.lanes;
}
// low, high: those of the first two lanes and of the last two.
TANDEM_SIMD_INLINE CodeFours ByPlace(int16x8_t low, int16x8_t high) {
  const int16x8_t even = vuzp1q_s16(low, high);
  const int16x8_t odd = vuzp2q_s16(low, high);
  return {vuzp1q_s16(even, odd), vuzp2q_s16(even, odd)};
}
TANDEM_SIMD_INLINE CodeFours LoadUnsigned(const uint8_t* p) {
  const uint8x16_t codes = vld1q_u8(p);
  return ByPlace(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(codes))),
                 vreinterpretq_s16_u16(vmovl_high_u8(codes)));
}
TANDEM_SIMD_INLINE CodeFours LoadSigned(const int8_t* p) {
  const int8x16_t codes = vld1q_s8(p);
  return ByPlace(vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes));
}
TANDEM_SIMD_INLINE void AddProducts(QuadSum& sum, const CodeFours& codes, const std::byte* quad) {
  const int16x4_t numbers = vld1_s16(reinterpret_cast<const int16_t*>(quad));
  sum.lanes = vmlal_lane_s16(sum.lanes, vget_low_s16(codes.first_two), numbers, 0);
  sum.lanes = vmlal_high_lane_s16(sum.lanes, codes.first_two, numbers, 1);
  sum.lanes = vmlal_lane_s16(sum.lanes, vget_low_s16(codes.last_two), numbers, 2);
  sum.lanes = vmlal_high_lane_s16(sum.lanes, codes.last_two, numbers, 3);
}
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, I32V numbers) {
  vst1_s16(reinterpret_cast<int16_t*>(to), vmovn_s32(numbers));
}

#elif defined(__AVX512VNNI__)

// kLanes fours of codes.
struct CodeFours {
  I32V codes;
};
// Sums of products, by digit.
struct QuadSum {
  I32V high;
  I32V low;
};

#if defined(TANDEM_VECTORS_OF_256_BITS)
TANDEM_SIMD_INLINE I32V DotUnsignedSigned(I32V sum, I32V a, I32V b) {
  return _mm256_dpbusd_epi32(sum, a, b);
}
TANDEM_SIMD_INLINE I32V Times256(I32V v) {
  return _mm256_slli_epi32(v, 8);
}
// Low bytes of the lanes.
TANDEM_SIMD_INLINE __m128i LowBytes(I32V v) {
  return _mm256_cvtepi32_epi8(v);
}
TANDEM_SIMD_INLINE I32V Over256(I32V v) {
  return _mm256_srai_epi32(v, 8);
}
#else
TANDEM_SIMD_INLINE I32V DotUnsignedSigned(I32V sum, I32V a, I32V b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}
TANDEM_SIMD_INLINE I32V Times256(I32V v) {
  return _mm512_slli_epi32(v, 8);
}
TANDEM_SIMD_INLINE __m128i LowBytes(I32V v) {
  return _mm512_cvtepi32_epi8(v);
}
TANDEM_SIMD_INLINE I32V Over256(I32V v) {
  return _mm512_srai_epi32(v, 8);
}
#endif

TANDEM_SIMD_INLINE QuadSum ZeroQuadSum() {
  return {SetInt(0), SetInt(0)};
}
TANDEM_SIMD_INLINE I32V Total(const QuadSum& sum) {
  return AddInts(Times256(sum.high), sum.low);
}
TANDEM_SIMD_INLINE CodeFours LoadUnsigned(const uint8_t* p) {
  return {LoadInts(reinterpret_cast<const int32_t*>(p))};
}
TANDEM_SIMD_INLINE CodeFours LoadSigned(const int8_t* p) {
  return {LoadInts(reinterpret_cast<const int32_t*>(p))};
}
TANDEM_SIMD_INLINE int32_t WordAt(const std::byte* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
// Unsigned codes with signed numbers.
TANDEM_SIMD_INLINE void AddKeys(QuadSum& sum, const CodeFours& keys, const std::byte* quad) {
  sum.high = DotUnsignedSigned(sum.high, keys.codes, SetInt(WordAt(quad)));
  sum.low = DotUnsignedSigned(sum.low, keys.codes, SetInt(WordAt(quad + 4)));
}
// Signed codes with numbers >= 0.
TANDEM_SIMD_INLINE void AddValues(QuadSum& sum, const CodeFours& values, const std::byte* quad) {
  sum.high = DotUnsignedSigned(sum.high, SetInt(WordAt(quad)), values.codes);
  sum.low = DotUnsignedSigned(sum.low, SetInt(WordAt(quad + 4)), values.codes);
}

// High and low digits of kLanes numbers, a byte each. The low digits of numbers with a sign have one too.
TANDEM_SIMD_INLINE void SignedDigits(I32V numbers, __m128i* high, __m128i* low) {
  *low = LowBytes(numbers);
  *high = LowBytes(Over256(AddInts(numbers, SetInt(128))));
}
TANDEM_SIMD_INLINE void UnsignedDigits(I32V numbers, __m128i* high, __m128i* low) {
  *low = LowBytes(numbers);
  *high = LowBytes(Over256(numbers));
}
// kLanes / 4 quads, one after the other.
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, __m128i high, __m128i low) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(high, low));
  if constexpr (kLanes == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), _mm_unpackhi_epi32(high, low));
  }
}
TANDEM_SIMD_INLINE void StoreSignedQuads(std::byte* to, I32V numbers) {
  __m128i high;
  __m128i low;
  SignedDigits(numbers, &high, &low);
  StoreQuads(to, high, low);
}
TANDEM_SIMD_INLINE void StoreUnsignedQuads(std::byte* to, I32V numbers) {
  __m128i high;
  __m128i low;
  UnsignedDigits(numbers, &high, &low);
  StoreQuads(to, high, low);
}

#elif defined(__AVX2__)

#if defined(__AVX512F__)
using HalfCodes = __m256i;  // bytes before they are widened
TANDEM_SIMD_INLINE HalfCodes LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
TANDEM_SIMD_INLINE I32V WidenUnsigned(HalfCodes v) {
  return _mm512_cvtepu8_epi16(v);
}
TANDEM_SIMD_INLINE I32V WidenSigned(HalfCodes v) {
  return _mm512_cvtepi8_epi16(v);
}
TANDEM_SIMD_INLINE I32V MultiplyPairs(I32V a, I32V b) {
  return _mm512_madd_epi16(a, b);
}
TANDEM_SIMD_INLINE I32V SetQuad(int64_t quad) {
  return _mm512_set1_epi64(quad);
}
// Lane i of the result: lanes 2 i and 2 i + 1 of low and then high, added.
TANDEM_SIMD_INLINE I32V AddNeighbours(I32V low, I32V high) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return AddInts(_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high));
}
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, I32V numbers) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(numbers));
}
#else
using HalfCodes = __m128i;
TANDEM_SIMD_INLINE HalfCodes LoadBytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
TANDEM_SIMD_INLINE I32V WidenUnsigned(HalfCodes v) {
  return _mm256_cvtepu8_epi16(v);
}
TANDEM_SIMD_INLINE I32V WidenSigned(HalfCodes v) {
  return _mm256_cvtepi8_epi16(v);
}
TANDEM_SIMD_INLINE I32V MultiplyPairs(I32V a, I32V b) {
  return _mm256_madd_epi16(a, b);
}
TANDEM_SIMD_INLINE I32V SetQuad(int64_t quad) {
  return _mm256_set1_epi64x(quad);
}
TANDEM_SIMD_INLINE I32V AddNeighbours(I32V low, I32V high) {
  return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
}
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, I32V numbers) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(numbers, numbers), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(words));
}
#endif

// kLanes fours of codes, widened: the first half of the fours and the second.
struct CodeFours {
  I32V first;
  I32V second;
};
// Two sums of products in neighbouring lanes for each four.
struct QuadSum {
  I32V first;
  I32V second;
};
TANDEM_SIMD_INLINE QuadSum ZeroQuadSum() {
  return {SetInt(0), SetInt(0)};
}
TANDEM_SIMD_INLINE I32V Total(const QuadSum& sum) {
  return AddNeighbours(sum.first, sum.second);
}
TANDEM_SIMD_INLINE CodeFours LoadUnsigned(const uint8_t* p) {
  return {WidenUnsigned(LoadBytes(p)), WidenUnsigned(LoadBytes(p + 2 * kLanes))};
}
TANDEM_SIMD_INLINE CodeFours LoadSigned(const int8_t* p) {
  return {WidenSigned(LoadBytes(p)), WidenSigned(LoadBytes(p + 2 * kLanes))};
}
TANDEM_SIMD_INLINE void AddProducts(QuadSum& sum, const CodeFours& codes, const std::byte* quad) {
  int64_t numbers;
  std::memcpy(&numbers, quad, sizeof(numbers));
  const I32V all = SetQuad(numbers);
  sum.first = AddInts(sum.first, MultiplyPairs(codes.first, all));
  sum.second = AddInts(sum.second, MultiplyPairs(codes.second, all));
}

#else

struct CodeFours {
  int16_t codes[4 * kLanes];
};
struct QuadSum {
  I32V lanes;
};
TANDEM_SIMD_INLINE QuadSum ZeroQuadSum() {
  return {SetInt(0)};
}
TANDEM_SIMD_INLINE I32V Total(const QuadSum& sum) {
  return sum.lanes;
}
template <typename Code>
TANDEM_SIMD_INLINE CodeFours LoadCodes(const Code* p) {
  CodeFours fours;
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): codes have a sign
  for (int i = 0; i < 4 * kLanes; ++i) fours.codes[i] = static_cast<int16_t>(p[i]);
  return fours;
}
TANDEM_SIMD_INLINE CodeFours LoadUnsigned(const uint8_t* p) {
  return LoadCodes(p);
}
TANDEM_SIMD_INLINE CodeFours LoadSigned(const int8_t* p) {
  return LoadCodes(p);
}
TANDEM_SIMD_INLINE void AddProducts(QuadSum& sum, const CodeFours& codes, const std::byte* quad) {
  int16_t numbers[4];
  std::memcpy(numbers, quad, sizeof(numbers));
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) sum.lanes[lane] += codes.codes[4 * lane + i] * numbers[i];
  }
}
TANDEM_SIMD_INLINE void StoreQuads(std::byte* to, I32V numbers) {
  for (int i = 0; i < kLanes; ++i) {
    const auto word = static_cast<int16_t>(numbers[i]);
    std::memcpy(to + 2 * i, &word, sizeof(word));
  }
}

#endif

#if !defined(__AVX512VNNI__) && !defined(TANDEM_NEON_MATRIX)
TANDEM_SIMD_INLINE void AddKeys(QuadSum& sum, const CodeFours& keys, const std::byte* quad) {
  AddProducts(sum, keys, quad);
}
TANDEM_SIMD_INLINE void AddValues(QuadSum& sum, const CodeFours& values, const std::byte* quad) {
  AddProducts(sum, values, quad);
}
TANDEM_SIMD_INLINE void StoreSignedQuads(std::byte* to, I32V numbers) {
  StoreQuads(to, numbers);
}
TANDEM_SIMD_INLINE void StoreUnsignedQuads(std::byte* to, I32V numbers) {
  StoreQuads(to, numbers);
}
#endif

}  // namespace
}  // namespace tandem
