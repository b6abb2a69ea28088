// Products of few rows with quantized weights, compiled once an instruction set (see simd.h). A group of rows
// shares one read of the codes.
#pragma once

#include "ops/host/linear/integer_microkernel.h"
#include "ops/host/linear/quantized_panel.h"
#include "ops/host/linear/row_groups.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// acc += x W, a multiply-add a weight.
template <typename X, int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyDequantized(const QuantizedLayout& layout, const PanelPass<X>& pass,
                                            Accumulators<kRows, kVectors>& acc) {
  const std::byte* group = pass.panel + layout.groups_offset;
  const X* x = pass.x;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    const auto scales = LoadScales<kVectors>(layout, pass.panel, g, pass.factors, pass.column);
    const auto minimums = LoadMinimums<kVectors>(layout, pass.panel, g, pass.factors, pass.column, scales);
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * pass.column;
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord<kBits>) {
      PairV codes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) codes[v] = LoadPairs(words + 2 * v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerWord<kBits>; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const F32V weight = Fma(CodeAt<kBits>(codes[v], i), scales.value[v], minimums.value[v]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            acc.value[r][v] = Fma(Set(LoadScalar(x + r * pass.x_stride + i)), weight, acc.value[r][v]);
          }
        }
      }
      x += kCodesPerWord<kBits>;
      words += kPairsPerPanelRow;
    }
  }
}

#if defined(TANDEM_INTEGER_PRODUCTS)

template <typename X>
constexpr bool kIsInteger = false;
template <>
constexpr bool kIsInteger<Integer16> = true;

template <int kRows, int kVectors>
TANDEM_SIMD_INLINE void ScaleRows(const float* x_scales, Accumulators<kRows, kVectors>& acc) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[r][v] = Mul(acc.value[r][v], Set(x_scales[r]));
  }
}

#endif

template <typename Y>
TANDEM_SIMD_INLINE void FinishVector(const QuantizedTile& tile, int64_t row, int64_t column, F32V sum) {
  FinishOutputs(sum, tile.bias == nullptr ? nullptr : tile.bias + column,
                static_cast<Y*>(tile.y) + row * tile.y_stride + column, tile.out_features - column);
}

// kVectors vectors of columns from `column` of the panel on, for kRows rows from `row` on.
template <typename X, typename Y, int kBits, int kRows, int kVectors>
void QuantizedColumns(const QuantizedTile& tile, int64_t row, int64_t panel, int64_t column) {
  const QuantizedLayout& layout = tile.layout;
  Accumulators<kRows, kVectors> acc;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[r][v] = Zero();
  }
  const PanelPass<X> pass = {static_cast<const X*>(tile.x) + row * tile.x_stride,
                             tile.x_stride,
                             tile.group_sums == nullptr ? nullptr : tile.group_sums + row * layout.num_groups,
                             tile.first_sums == nullptr ? nullptr : tile.first_sums + row * layout.num_groups,
                             tile.panels + panel * layout.panel_bytes,
                             tile.factors + panel * kPanelColumns,
                             column};
#if defined(TANDEM_INTEGER_PRODUCTS)
  if constexpr (kIsInteger<X>) {
    MultiplyIntegers<kBits>(layout, pass, acc);
    ScaleRows(tile.x_scales + row, acc);
  } else {
    MultiplyDequantized<X, kBits>(layout, pass, acc);
  }
#else
  MultiplyDequantized<X, kBits>(layout, pass, acc);
#endif
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t y_column = panel * kPanelColumns + column + v * kLanes;
      FinishVector<Y>(tile, row + r, y_column, acc.value[r][v]);
    }
  }
}

// A unit of 32 columns has 2 vectors of 16 lanes, 4 of 8 or 8 of 4.
constexpr int kVectorsPerUnit = static_cast<int>(kColumnsPerUnit) / kLanes;
constexpr int kQuantizedVectors = kVectorsPerUnit < 2 ? kVectorsPerUnit : 2;
constexpr int kQuantizedGroupRows = kNumVectorRegisters >= 32 ? 6 : 4;
// Vectors of 4 lanes are a quarter of a line: as many as there are registers for.
template <int kRows>
constexpr int kPassVectors = kLanes == 4 && kNumVectorRegisters >= 32 && kRows <= 3 ? 4 : kQuantizedVectors;

template <typename X, typename Y, int kBits, int kRows>
void QuantizedRowGroup(const QuantizedTile& tile, int64_t row) {
  for (int64_t unit = tile.first_unit; unit < tile.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t column = unit % kUnitsPerPanel * kColumnsPerUnit;
    // Few rows, as long as their sums are registers: a panel at once, read from the first to the last byte.
    constexpr int kPanelVectors = static_cast<int>(kPanelColumns) / kLanes;
    if constexpr (kRows <= 2 && kPanelVectors <= 4) {
      if (column == 0 && unit + kUnitsPerPanel <= tile.end_unit) {
        QuantizedColumns<X, Y, kBits, kRows, kPanelVectors>(tile, row, panel, 0);
        unit += kUnitsPerPanel;
        continue;
      }
    }
    for (int64_t c = column; c < column + kColumnsPerUnit; c += kPassVectors<kRows> * kLanes)
      QuantizedColumns<X, Y, kBits, kRows, kPassVectors<kRows>>(tile, row, panel, c);
    ++unit;
  }
}

template <typename X, typename Y, int kBits>
void QuantizedRowsOf(const QuantizedTile& tile) {
  ForEachRowGroup<kQuantizedGroupRows>(
      tile.num_rows, [&]<int kRows>(int64_t row) { QuantizedRowGroup<X, Y, kBits, kRows>(tile, row); });
}

template <typename X, typename Y>
void RunQuantizedTile(const QuantizedTile& tile) {
  if (tile.layout.bits == 4) {
    QuantizedRowsOf<X, Y, 4>(tile);
  } else {
    QuantizedRowsOf<X, Y, 8>(tile);
  }
}

// A vector of columns of a panel, in all k. fp32 [k][64], bf16 [k / 2][64][2].
template <typename T, int kBits>
void DequantizeColumns(const QuantizedLayout& layout, const std::byte* panel, const float* factors,
                       int64_t column, T* to) {
  const std::byte* group = panel + layout.groups_offset;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    const auto scales = LoadScales<1>(layout, panel, g, factors, column);
    const auto minimums = LoadMinimums<1>(layout, panel, g, factors, column, scales);
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * column;
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord<kBits>) {
      const PairV codes = LoadPairs(words);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerWord<kBits>; ++i) {
        const F32V weight = Fma(CodeAt<kBits>(codes, i), scales.value[0], minimums.value[0]);
        if constexpr (sizeof(T) == 4) {
          Store(to + i * kPanelColumns + column, weight);
        } else {
          uint16_t values[kLanes];
          StoreBf16(values, weight);
          T* pairs = to + i / 2 * kPairsPerPanelRow + 2 * column + i % 2;
          for (int lane = 0; lane < kLanes; ++lane) pairs[2 * lane] = values[lane];
        }
      }
      words += kPairsPerPanelRow;
      to += kCodesPerWord<kBits> * kPanelColumns;
    }
  }
}

#if defined(__AVX512BF16__)

alignas(64) constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Code k of a word, as a number: a lookup takes four bits of an index.
template <int kBits>
TANDEM_SIMD_INLINE F32V LookUpCode(__m512i words, int k, F32V numbers) {
  if constexpr (kBits == 8) return CodeAt<8>(words, k);
  const int shift = k / 2 * 4 + k % 2 * 16;
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, static_cast<unsigned>(shift)), numbers);
}

// As DequantizeColumns, of bf16.
template <int kBits>
void DequantizePairs(const QuantizedLayout& layout, const std::byte* panel, const float* factors,
                     int64_t column, uint16_t* to) {
  const F32V numbers = Load(kNumbers);
  // Words 0 .. 15 are of the even k, 16 .. 31 of the odd.
  const __m512i interleave = _mm512_add_epi32(
      _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32(0x00010001)),
      _mm512_set1_epi32(0x00100000));
  const std::byte* group = panel + layout.groups_offset;
  to += 2 * column;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    const auto scales = LoadScales<1>(layout, panel, g, factors, column);
    const auto minimums = LoadMinimums<1>(layout, panel, g, factors, column, scales);
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * column;
    for (int64_t left = layout.group_size; left > 0; left -= kCodesPerWord<kBits>) {
      const __m512i codes = LoadPairs(words);
#pragma GCC unroll 4
      for (int i = 0; i < kCodesPerWord<kBits>; i += 2) {
        const F32V even = Fma(LookUpCode<kBits>(codes, i, numbers), scales.value[0], minimums.value[0]);
        const F32V odd = Fma(LookUpCode<kBits>(codes, i + 1, numbers), scales.value[0], minimums.value[0]);
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);  // NOLINT(google-readability-casting)
        StorePairs(to, _mm512_permutexvar_epi16(interleave, both));
        to += kPairsPerPanelRow;
      }
      words += kPairsPerPanelRow;
    }
  }
}

#endif

template <typename T>
void DequantizePanel(const QuantizedLayout& layout, const std::byte* panel, const float* factors, T* to) {
#if defined(__AVX512BF16__)
  if constexpr (sizeof(T) == 2) {
    for (int64_t column = 0; column < kPanelColumns; column += kLanes) {
      if (layout.bits == 4) {
        DequantizePairs<4>(layout, panel, factors, column, to);
      } else {
        DequantizePairs<8>(layout, panel, factors, column, to);
      }
    }
    return;
  }
#endif
  for (int64_t column = 0; column < kPanelColumns; column += kLanes) {
    if (layout.bits == 4) {
      DequantizeColumns<T, 4>(layout, panel, factors, column, to);
    } else {
      DequantizeColumns<T, 8>(layout, panel, factors, column, to);
    }
  }
}

constexpr QuantizedKernels kQuantizedKernels = {
    .f32 = RunQuantizedTile<float, float>,
#if defined(TANDEM_INTEGER_PRODUCTS)
    .to_integers = ToIntegers,
    .integers_to_f32 = RunQuantizedTile<Integer16, float>,
    .integers_to_bf16 = RunQuantizedTile<Integer16, uint16_t>,
    .max_rows_integers = 4 * kQuantizedGroupRows,
    .max_rows_integers_int8 = 4 * kQuantizedGroupRows,
#else
    .bf16_to_f32 = RunQuantizedTile<uint16_t, float>,
    .bf16_to_bf16 = RunQuantizedTile<uint16_t, uint16_t>,
    .max_rows_bf16 = kQuantizedGroupRows,
#endif
    .max_rows_f32 = kQuantizedGroupRows,
    .dequantize_f32 = DequantizePanel<float>,
    .dequantize_bf16 = DequantizePanel<uint16_t>,
};

}  // namespace
}  // namespace tandem
