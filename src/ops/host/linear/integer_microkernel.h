// Products of few bf16 rows with quantized weights in integers: rows become numbers of 16 bits with a scale a
// row, products with codes are exact, and sums of a group meet the scales in fp32. Compiled once an
// instruction set. With VNNI and NEON's dot products a number of x is two of 8 bits, 256 * high + low: an
// instruction multiplies four codes with either (I8MM: eight with both). Without, an instruction multiplies
// two codes with numbers of 16 bits.
#pragma once

#include "ops/host/linear/quantized_panel.h"
#include "simd/fetch_level.h"

#if defined(__AVX2__) || (defined(TANDEM_NEON) && defined(__ARM_FEATURE_DOTPROD))
#define TANDEM_INTEGER_PRODUCTS
#endif

#if defined(TANDEM_INTEGER_PRODUCTS)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// An element of a row of integers.
struct Integer16 {
  uint16_t bits;
};

constexpr float kLargestInteger = 127 * 256 + 127;
// So many products of a code of 8 bits and an integer fit into 31 bits.
constexpr int64_t kMaxSumDepth = 256;

// Otherwise sums begin with what moves the codes by their zero.
TANDEM_SIMD_INLINE bool AddsMinimum(const QuantizedLayout& layout) {
  return layout.has_minimum || layout.group_size > kMaxSumDepth;
}

// Rows of words that are multiplied at once.
template <int kBits>
constexpr int kWordRows = 1;

#if defined(TANDEM_NEON_MATRIX)

template <>
constexpr int kWordRows<8> = 2;
constexpr int kIntegersAtOnce = 8;

template <int kRows, int kVectors>
struct IntegerSums {
  // Of two columns each: {column 0 high, column 0 low, column 1 high, column 1 low}.
  I32V first_two[kRows][kVectors];
  I32V last_two[kRows][kVectors];

  TANDEM_SIMD_INLINE void Start(int row, int v, int32_t first) {
    const int32_t values[kLanes] = {0, first, 0, first};
    first_two[row][v] = vld1q_s32(values);
    last_two[row][v] = first_two[row][v];
  }
  TANDEM_SIMD_INLINE F32V Total(int row, int v) const {
    const I32V high = vuzp1q_s32(first_two[row][v], last_two[row][v]);
    return FromInts(AddInts(vshlq_n_s32(high, 8), vuzp2q_s32(first_two[row][v], last_two[row][v])));
  }
};

// Adds the products of kWordRows rows of words. x: at the words' first k.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyWords(const uint16_t* words, const uint16_t* x, int64_t x_stride,
                                      IntegerSums<kRows, kVectors>* sums) {
  // Eight codes of two columns each.
  uint8x16_t first_two[kVectors];
  uint8x16_t last_two[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    PairV a = LoadPairs(words + 2 * v * kLanes);
    PairV b;
    if constexpr (kBits == 4) {
      const PairV low_nibbles = vdupq_n_u32(0x0f0f0f0f);
      b = vandq_u32(vshrq_n_u32(a, 4), low_nibbles);
      a = vandq_u32(a, low_nibbles);
    } else {
      b = LoadPairs(words + kPairsPerPanelRow + 2 * v * kLanes);
    }
    first_two[v] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
    last_two[v] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const int8x16_t digits = vreinterpretq_s8_u16(vld1q_u16(x + r * x_stride));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums->first_two[r][v] = vusmmlaq_s32(sums->first_two[r][v], first_two[v], digits);
      sums->last_two[r][v] = vusmmlaq_s32(sums->last_two[r][v], last_two[v], digits);
    }
  }
}

#elif defined(TANDEM_NEON)

constexpr int kIntegersAtOnce = 8;

template <int kRows, int kVectors>
struct IntegerSums {
  I32V low[kRows][kVectors];
  I32V high[kRows][kVectors];

  TANDEM_SIMD_INLINE void Start(int row, int v, int32_t first) {
    low[row][v] = vdupq_n_s32(first);
    high[row][v] = vdupq_n_s32(0);
  }
  TANDEM_SIMD_INLINE F32V Total(int row, int v) const {
    return FromInts(AddInts(vshlq_n_s32(high[row][v], 8), low[row][v]));
  }
};

// Codes of 8 bits are multiplied less 128, their zero: both factors have a sign.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyWords(const uint16_t* words, const uint16_t* x, int64_t x_stride,
                                      IntegerSums<kRows, kVectors>* sums) {
  PairV codes[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) codes[v] = LoadPairs(words + 2 * v * kLanes);
#pragma GCC unroll 2
  for (int quad = 0; quad < kCodesPerWord<kBits> / 4; ++quad) {
    int8x16_t bytes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      PairV taken = codes[v];
      if (quad == 1) taken = vshrq_n_u32(taken, 4);
      taken =
          kBits == 4 ? vandq_u32(taken, vdupq_n_u32(0x0f0f0f0f)) : veorq_u32(taken, vdupq_n_u32(0x80808080));
      bytes[v] = vreinterpretq_s8_u32(taken);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int8x8_t digits = vreinterpret_s8_u16(vld1_u16(x + r * x_stride + 4 * quad));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums->high[r][v] = vdotq_lane_s32(sums->high[r][v], bytes[v], digits, 0);
        sums->low[r][v] = vdotq_lane_s32(sums->low[r][v], bytes[v], digits, 1);
      }
    }
  }
}

#elif defined(__AVX512VNNI__)

constexpr int kIntegersAtOnce = kLanes;

template <int kRows, int kVectors>
struct IntegerSums {
  __m512i low[kRows][kVectors];
  __m512i high[kRows][kVectors];

  TANDEM_SIMD_INLINE void Start(int row, int v, int32_t first) {
    low[row][v] = _mm512_set1_epi32(first);
    high[row][v] = _mm512_setzero_si512();
  }
  TANDEM_SIMD_INLINE F32V Total(int row, int v) const {
    return FromInts(_mm512_add_epi32(_mm512_slli_epi32(high[row][v], 8), low[row][v]));
  }
};

// Adds the products of a row of words. x: at the words' first k.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyWords(const uint16_t* words, const uint16_t* x, int64_t x_stride,
                                      IntegerSums<kRows, kVectors>* sums) {
  const __m512i low_nibbles = _mm512_set1_epi32(0x0f0f0f0f);
  __m512i codes[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) codes[v] = LoadPairs(words + 2 * v * kLanes);
#pragma GCC unroll 2
  for (int quad = 0; quad < kCodesPerWord<kBits> / 4; ++quad) {
    __m512i bytes[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      bytes[v] = codes[v];
      if (quad == 1) bytes[v] = _mm512_srli_epi32(bytes[v], 4);
      if (kBits == 4) bytes[v] = _mm512_and_si512(bytes[v], low_nibbles);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i high = SetPair(PairAt(x + r * x_stride + 4 * quad));
      const __m512i low = SetPair(PairAt(x + r * x_stride + 4 * quad + 2));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums->high[r][v] = _mm512_dpbusd_epi32(sums->high[r][v], bytes[v], high);
        sums->low[r][v] = _mm512_dpbusd_epi32(sums->low[r][v], bytes[v], low);
      }
    }
  }
}

// 16 integers as MultiplyWords reads them: of every four codes that it multiplies at once, the four high
// bytes, then the four low ones.
template <int kBits>
TANDEM_SIMD_INLINE void StoreIntegers(uint16_t* to, __m512i integers) {
  // Where a word has its codes (quantized_layout.h): those of 4 bits in two turns.
  const __m128i order = kBits == 4 ? _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15)
                                   : _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  const __m512i rounded = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(128)), 8);
  const __m128i high = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(rounded), order);
  const __m128i low = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(integers), order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(high, low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm_unpackhi_epi32(high, low));
}

#else

constexpr int kIntegersAtOnce = kLanes;

template <int kRows, int kVectors>
struct IntegerSums {
  PairV value[kRows][kVectors];

  TANDEM_SIMD_INLINE void Start(int row, int v, int32_t first) {
    value[row][v] = SetPair(static_cast<uint32_t>(first));
  }
  TANDEM_SIMD_INLINE F32V Total(int row, int v) const { return FromInts(value[row][v]); }
};

// Adds the products of a row of words. x: at the words' first k.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyWords(const uint16_t* words, const uint16_t* x, int64_t x_stride,
                                      IntegerSums<kRows, kVectors>* sums) {
  const PairV mask = SetPair(((1U << kBits) - 1U) * 0x10001U);
#pragma GCC unroll 8
  for (int i = 0; i < kCodesPerWord<kBits> / 2; ++i) {
    PairV pairs[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      pairs[v] =
          AndPairs(ShiftRight(LoadPairs(words + 2 * v * kLanes), static_cast<unsigned>(kBits * i)), mask);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const PairV value = SetPair(PairAt(x + r * x_stride + 2 * i));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums->value[r][v] = DotIntPairs(sums->value[r][v], pairs[v], value);
    }
  }
}

template <int kBits>
TANDEM_SIMD_INLINE void StoreIntegers(uint16_t* to, PairV integers) {
  StoreInt16(to, integers);
}

#endif

#if defined(TANDEM_NEON)

// 8 integers as MultiplyWords reads them: the high digits of as many as it multiplies at once, then the low
// ones, each in the order of the codes in a word (quantized_layout.h).
template <int kBits>
TANDEM_SIMD_INLINE void StoreIntegers(uint16_t* to, I32V first, I32V last) {
  const I32V half = vdupq_n_s32(128);
  const int8x16_t high = vreinterpretq_s8_s16(
      vcombine_s16(vshrn_n_s32(AddInts(first, half), 8), vshrn_n_s32(AddInts(last, half), 8)));
  const int8x16_t low = vreinterpretq_s8_s16(vcombine_s16(vmovn_s32(first), vmovn_s32(last)));
  const int8x16_t digits = vuzp1q_s8(high, low);  // {8 high, 8 low}
#if defined(TANDEM_NEON_MATRIX)
  constexpr uint8_t kOrder4[16] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  constexpr uint8_t kOrder8[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
#else
  constexpr uint8_t kOrder4[16] = {0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15};
  constexpr uint8_t kOrder8[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
#endif
  const uint8x16_t order = vld1q_u8(kBits == 4 ? kOrder4 : kOrder8);
  vst1q_u16(to, vreinterpretq_u16_s8(vqtbl1q_s8(digits, order)));
}

#endif

// What a sum of codes times integers of row r begins with: `depth` k of group g, of which the row's integers
// are x.
template <int kBits>
TANDEM_SIMD_INLINE int32_t FirstOfSum(const QuantizedLayout& layout, const PanelPass<Integer16>& pass,
                                      int64_t r, int64_t g, const uint16_t* x, int64_t depth) {
#if defined(TANDEM_NEON) && !defined(TANDEM_NEON_MATRIX)
  if constexpr (kBits == 8) {
    // MultiplyWords has moved the codes by their zero.
    if (!AddsMinimum(layout)) return 0;
    I32V sums = vdupq_n_s32(0);  // twice {4 high digits, 4 low ones}
    for (int64_t k = 0; k < depth; k += 8)
      sums = vdotq_s32(sums, vreinterpretq_s8_u16(vld1q_u16(x + k)), vdupq_n_s8(1));
    return 128 * (256 * (sums[0] + sums[2]) + sums[1] + sums[3]);
  }
#endif
  static_cast<void>(x);
  static_cast<void>(depth);
  return pass.first_sums[r * layout.num_groups + g];
}

// acc += x W, without the scales of x.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyIntegers(const QuantizedLayout& layout, const PanelPass<Integer16>& pass,
                                         Accumulators<kRows, kVectors>& acc) {
  constexpr int64_t kFetchAhead = 4096;
  const bool adds_minimum = AddsMinimum(layout);
  const std::byte* group = pass.panel + layout.groups_offset;
  const auto* x = reinterpret_cast<const uint16_t*>(pass.x);
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * pass.column;
    for (int64_t left = layout.group_size; left > 0; left -= kMaxSumDepth) {
      const int64_t depth = left < kMaxSumDepth ? left : kMaxSumDepth;
      IntegerSums<kRows, kVectors> sums;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const int32_t first = FirstOfSum<kBits>(layout, pass, r, g, x + r * pass.x_stride, depth);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums.Start(r, v, first);
      }
      constexpr int64_t kStepDepth = kWordRows<kBits> * kCodesPerWord<kBits>;
      for (int64_t end = depth; end > 0; end -= kStepDepth) {
#pragma GCC unroll 2
        for (int64_t row = 0; row < kWordRows<kBits>; ++row) {
#pragma GCC unroll 8
          for (int64_t line = 0; line < (kVectors * kLanes + 15) / 16; ++line) {
            FetchLine<FetchLevel::kL1>(reinterpret_cast<const char*>(words + row * kPairsPerPanelRow) +
                                       kFetchAhead + 64 * line);
          }
        }
        MultiplyWords<kBits>(words, x, pass.x_stride, &sums);
        x += kStepDepth;
        words += kWordRows<kBits> * kPairsPerPanelRow;
      }
      const auto scales = LoadScales<kVectors>(layout, pass.panel, g, pass.factors, pass.column);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          acc.value[r][v] = Fma(sums.Total(r, v), scales.value[v], acc.value[r][v]);
      }
      if (adds_minimum && left <= kMaxSumDepth) {
        const auto minimums =
            LoadMinimums<kVectors>(layout, pass.panel, g, pass.factors, pass.column, scales);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F32V sum = Set(pass.group_sums[r * layout.num_groups + g]);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) acc.value[r][v] = Fma(sum, minimums.value[v], acc.value[r][v]);
        }
      }
    }
  }
}

template <int kBits>
TANDEM_SIMD_INLINE void ConvertRow(const QuantizedLayout& layout, const uint16_t* x, float inverse,
                                   const IntegerRow& to) {
  const F32V factor = Set(inverse);
  const bool adds_minimum = AddsMinimum(layout);
  uint16_t* values = to.values;
  for (int64_t g = 0; g < layout.num_groups; ++g) {
    decltype(ToInts(factor)) sums{};
    for (int64_t k = 0; k < layout.group_size; k += kIntegersAtOnce) {
      auto integers = ToInts(Mul(LoadBf16(x), factor));
#if defined(TANDEM_NEON)
      const I32V last = ToInts(Mul(LoadBf16(x + kLanes), factor));
      StoreIntegers<kBits>(values, integers, last);
      integers = AddInts(integers, last);
#else
      StoreIntegers<kBits>(values, integers);
#endif
      sums = AddInts(sums, integers);
      x += kIntegersAtOnce;
      values += kIntegersAtOnce;
    }
    const float sum = SumLanes(FromInts(sums));  // exact up to kMaxSumDepth
    to.group_sums[g] = sum;
    // Of rows that are not finite it wraps: whatever their sums are, the scale makes nothing of them.
    const int64_t first = adds_minimum ? 0 : -ZeroCode(kBits) * static_cast<int64_t>(sum);
    to.first_sums[g] = static_cast<int32_t>(first);
  }
}

// QuantizedKernels::to_integers. Infinite values and those that are no number go to the scale.
inline void ToIntegers(const QuantizedLayout& layout, const uint16_t* x, const IntegerRow& to) {
  constexpr float kSmallest = 1e-30F;  // so that the inverse is finite; rows of less are zero
  uint16_t largest_bits = 0;
  for (int64_t k = 0; k < layout.num_groups * layout.group_size; ++k) {
    const auto magnitude = static_cast<uint16_t>(x[k] & 0x7fffU);
    largest_bits = magnitude > largest_bits ? magnitude : largest_bits;
  }
  const float largest = ScalarFromBf16(largest_bits);
  *to.scale = largest / kLargestInteger;
  const float inverse = largest >= kSmallest ? kLargestInteger / largest : 0.0F;
  if (layout.bits == 4) {
    ConvertRow<4>(layout, x, inverse, to);
  } else {
    ConvertRow<8>(layout, x, inverse, to);
  }
}

}  // namespace
}  // namespace tandem

#endif
