// Products of few rows with weights of FP8 (E4M3), compiled once an instruction set (see simd.h).
//
// A code is read as 2^-8 of its value, E4M3's exponent being biased by 8 less than fp16's: its bits then move
// to their place in a wider float with no more than an OR. The scale makes good for it.
#pragma once

#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_kernels.h"
#include "ops/host/linear/row_groups.h"
#include "simd/multiply_add.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kPairsPerPanelRow = 2 * kPanelColumns;  // bf16 values of two k
constexpr int kCodesPerWord = 4;

#if defined(__AVX512BW__)

// bf16 of 0 .. 7 times 2^-17, four times: a lookup takes five bits of an index.
alignas(64) constexpr uint16_t kSubnormals[32] = {
    0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860, 0x0000, 0x3700, 0x3780,
    0x37c0, 0x3800, 0x3820, 0x3840, 0x3860, 0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820,
    0x3840, 0x3860, 0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860};

// Codes 2 i and 2 i + 1 of a word as a pair of bf16, exactly.
TANDEM_SIMD_INLINE __m512i CodePairAt(__m512i words, int i, __m512i subnormals) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i bytes = i == 0 ? words : _mm512_srli_epi16(words, 8);
  __m512i values = _mm512_ternarylogic_epi32(_mm512_slli_epi16(bytes, 4), _mm512_set1_epi16(0x07f0),
                                             _mm512_set1_epi16(0x3800), kAndOr);
  const __mmask32 is_subnormal = _mm512_testn_epi16_mask(bytes, _mm512_set1_epi16(0x0078));
  values = _mm512_mask_permutexvar_epi16(values, is_subnormal, bytes, subnormals);
  const __m512i signs = i == 0 ? _mm512_slli_epi16(words, 8) : words;
  return _mm512_ternarylogic_epi32(signs, _mm512_set1_epi16(static_cast<int16_t>(0x8000)), values, kAndOr);
}

#else

// Code k of a word.
TANDEM_SIMD_INLINE F32V CodeAt(PairV words, int k) {
  constexpr unsigned kPlace = 20;                                    // of the last bit of a mantissa of three
  const auto shift = static_cast<unsigned>(k / 2 * 8 + k % 2 * 16);  // quantized_layout.h
  const PairV moved = shift > kPlace ? ShiftRight(words, shift - kPlace) : ShiftLeft(words, kPlace - shift);
  const F32V value = FromBits(OrPairs(AndPairs(moved, SetPair(0x07f00000)), SetPair(0x38000000)));
  // A subnormal number's mantissa has no 1 in front of it, and counts twice.
  const F32V correction = Min(Sub(value, Set(0x1p-14F)), Zero());
  const PairV sign = AndPairs(ShiftLeft(words, 24 - shift), SetPair(0x80000000));
  return FromBits(OrPairs(ToBits(Add(value, correction)), sign));
}

#endif

struct CodesOfWord {
  F32V value[kCodesPerWord];
};

TANDEM_SIMD_INLINE CodesOfWord Unpack(PairV words) {
  CodesOfWord codes;
#if defined(__AVX512BW__)
  const __m512i subnormals = _mm512_load_si512(kSubnormals);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512i pair = CodePairAt(words, i, subnormals);
    codes.value[2 * i] = LowHalves(pair);
    codes.value[2 * i + 1] = HighHalves(pair);
  }
#else
#pragma GCC unroll 4
  for (int k = 0; k < kCodesPerWord; ++k) codes.value[k] = CodeAt(words, k);
#endif
  return codes;
}

// Of a vector of columns, from `column` of the panel on. group: its first byte.
TANDEM_SIMD_INLINE F32V LoadScale(const std::byte* group, int64_t column) {
  return Mul(Load(reinterpret_cast<const float*>(group) + column), Set(256.0F));
}

TANDEM_SIMD_INLINE const uint16_t* WordsOf(const QuantizedLayout& layout, const std::byte* group,
                                           int64_t column) {
  return reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * column;
}

// What a pass over a panel needs: kRows rows of x, the columns from `column` on.
template <typename X>
struct PanelPass {
  const X* x = nullptr;
  int64_t x_stride = 0;
  const std::byte* panel = nullptr;
  int64_t column = 0;
};

// acc += x W, a multiply-add a weight.
template <typename X, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyDequantized(const QuantizedLayout& layout, const PanelPass<X>& pass,
                                            Accumulators<kRows, kVectors>& acc) {
  const std::byte* group = pass.panel;
  const X* x = pass.x;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    F32V scales[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) scales[v] = LoadScale(group, pass.column + v * kLanes);
    const uint16_t* words = WordsOf(layout, group, pass.column);
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord) {
      CodesOfWord codes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) codes[v] = Unpack(LoadPairs(words + 2 * v * kLanes));
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerWord; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const F32V weight = Mul(codes[v].value[i], scales[v]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            acc.value[r][v] = Fma(Set(LoadScalar(x + r * pass.x_stride + i)), weight, acc.value[r][v]);
          }
        }
      }
      x += kCodesPerWord;
      words += kPairsPerPanelRow;
    }
  }
}

#if defined(__AVX512BF16__)

// acc += x W, by sums of x times codes: exact weights, and a multiply-add for two of them.
template <int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyCodes(const QuantizedLayout& layout, const PanelPass<uint16_t>& pass,
                                      Accumulators<kRows, kVectors>& acc) {
  constexpr int64_t kFetchBytes = 4096;  // ahead of what is multiplied
  const __m512i subnormals = _mm512_load_si512(kSubnormals);
  const std::byte* group = pass.panel;
  const uint16_t* x = pass.x;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    Accumulators<kRows, kVectors> sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums.value[r][v] = Zero();
    }
    const uint16_t* words = WordsOf(layout, group, pass.column);
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto* from = words + 2 * v * kLanes;
        _mm_prefetch(reinterpret_cast<const char*>(from) + kFetchBytes, _MM_HINT_T0);
        const __m512i codes = LoadPairs(from);
#pragma GCC unroll 2
        for (int i = 0; i < kCodesPerWord / 2; ++i) {
          const __m512i pair = CodePairAt(codes, i, subnormals);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sums.value[r][v] =
                DotPairs(sums.value[r][v], pair, SetPair(PairAt(x + r * pass.x_stride + 2 * i)));
          }
        }
      }
      x += kCodesPerWord;
      words += kPairsPerPanelRow;
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F32V scale = LoadScale(group, pass.column + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc.value[r][v] = Fma(sums.value[r][v], scale, acc.value[r][v]);
    }
  }
}

#endif

// kVectors vectors of columns from `column` of the panel on, for kRows rows from `row` on.
template <typename X, typename Y, int kRows, int kVectors>
void Fp8Columns(const QuantizedTile& tile, int64_t row, int64_t panel, int64_t column) {
  Accumulators<kRows, kVectors> acc;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[r][v] = Zero();
  }
  const PanelPass<X> pass = {static_cast<const X*>(tile.x) + row * tile.x_stride, tile.x_stride,
                             tile.panels + panel * tile.layout.panel_bytes, column};
#if defined(__AVX512BF16__)
  if constexpr (sizeof(X) == 2) {
    MultiplyCodes<kRows, kVectors>(tile.layout, pass, acc);
  } else {
    MultiplyDequantized<X, kRows, kVectors>(tile.layout, pass, acc);
  }
#else
  MultiplyDequantized<X, kRows, kVectors>(tile.layout, pass, acc);
#endif
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t y_column = panel * kPanelColumns + column + v * kLanes;
      FinishOutputs(acc.value[r][v], tile.bias == nullptr ? nullptr : tile.bias + y_column,
                    static_cast<Y*>(tile.y) + (row + r) * tile.y_stride + y_column,
                    tile.out_features - y_column);
    }
  }
}

constexpr int kFp8Vectors = 2;
constexpr int kFp8GroupRows = kNumVectorRegisters >= 32 ? 6 : 4;
static_assert(kColumnsPerUnit % (kFp8Vectors * kLanes) == 0);

template <typename X, typename Y, int kRows>
void Fp8RowGroup(const QuantizedTile& tile, int64_t row) {
  for (int64_t unit = tile.first_unit; unit < tile.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t column = unit % kUnitsPerPanel * kColumnsPerUnit;
    // Few rows: a panel at once, so that it is read from the first to the last byte.
    constexpr int kPanelVectors = static_cast<int>(kPanelColumns) / kLanes;
    if constexpr (kRows <= 3 && kPanelVectors <= 4) {
      if (column == 0 && unit + kUnitsPerPanel <= tile.end_unit) {
        Fp8Columns<X, Y, kRows, kPanelVectors>(tile, row, panel, 0);
        unit += kUnitsPerPanel;
        continue;
      }
    }
    for (int64_t c = column; c < column + kColumnsPerUnit; c += kFp8Vectors * kLanes)
      Fp8Columns<X, Y, kRows, kFp8Vectors>(tile, row, panel, c);
    ++unit;
  }
}

template <typename X, typename Y>
void RunFp8Tile(const QuantizedTile& tile) {
  ForEachRowGroup<kFp8GroupRows>(tile.num_rows,
                                 [&]<int kRows>(int64_t row) { Fp8RowGroup<X, Y, kRows>(tile, row); });
}

// Weights of k, an even one, and k + 1: to fp32 [k][64], to bf16 [k / 2][64][2].
TANDEM_SIMD_INLINE void StoreTwo(float* to, int64_t k, int64_t column, F32V even, F32V odd) {
  Store(to + k * kPanelColumns + column, even);
  Store(to + (k + 1) * kPanelColumns + column, odd);
}
TANDEM_SIMD_INLINE void StoreTwo(uint16_t* to, int64_t k, int64_t column, F32V even, F32V odd) {
  uint16_t* pairs = to + k / 2 * kPairsPerPanelRow + 2 * column;
#if defined(__AVX512BF16__)
  // Words 0 .. 15 are of the even k, 16 .. 31 of the odd.
  const __m512i interleave = _mm512_add_epi32(
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(0x00010001)),
      _mm512_set1_epi32(0x00100000));
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);  // NOLINT(google-readability-casting)
  StorePairs(pairs, _mm512_permutexvar_epi16(interleave, both));
#else
  uint16_t values[2][kLanes];
  StoreBf16(values[0], even);
  StoreBf16(values[1], odd);
  for (int lane = 0; lane < kLanes; ++lane) {
    pairs[2 * lane] = values[0][lane];
    pairs[2 * lane + 1] = values[1][lane];
  }
#endif
}

// Factors are 1.
template <typename T>
void DequantizeFp8Panel(const QuantizedLayout& layout, const std::byte* panel, const float* /*factors*/,
                        T* to) {
  const std::byte* group = panel;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    for (int64_t column = 0; column < kPanelColumns; column += kLanes) {
      const F32V scale = LoadScale(group, column);
      const uint16_t* words = WordsOf(layout, group, column);
      for (int64_t k = 0; k < layout.group_size; k += kCodesPerWord) {
        const CodesOfWord codes = Unpack(LoadPairs(words));
        StoreTwo(to, k, column, Mul(codes.value[0], scale), Mul(codes.value[1], scale));
        StoreTwo(to, k + 2, column, Mul(codes.value[2], scale), Mul(codes.value[3], scale));
        words += kPairsPerPanelRow;
      }
    }
    to += layout.group_size * kPanelColumns;
  }
}

constexpr QuantizedKernels kFp8Kernels = {
    .f32 = RunFp8Tile<float, float>,
    .bf16_to_f32 = RunFp8Tile<uint16_t, float>,
    .bf16_to_bf16 = RunFp8Tile<uint16_t, uint16_t>,
#if defined(__AVX512BF16__)
    .max_rows_bf16 = 4 * kFp8GroupRows,
#else
    .max_rows_bf16 = kFp8GroupRows,
#endif
    .max_rows_f32 = kFp8GroupRows,
    .dequantize_f32 = DequantizeFp8Panel<float>,
    .dequantize_bf16 = DequantizeFp8Panel<uint16_t>,
};

}  // namespace
}  // namespace tandem
