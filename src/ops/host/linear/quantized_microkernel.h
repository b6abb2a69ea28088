// Products of few rows with quantized weights, compiled once an instruction set (see simd.h). A group of rows
// shares one read of the codes.
#pragma once

#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_kernels.h"
#include "simd/multiply_add.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kPairsPerPanelRow = 2 * kPanelColumns;  // bf16 values of two k

template <int kVectors>
struct GroupScales {
  F32V scale[kVectors];
  F32V minimum[kVectors];
};

// Scales and minimums of group g for the columns from `column` of the panel on: numbers that fp32 holds
// exactly.
template <int kVectors>
TANDEM_SIMD_INLINE GroupScales<kVectors> LoadScales(const QuantizedLayout& layout, const std::byte* panel,
                                                    int64_t g, const float* factors, int64_t column) {
  const std::byte* group = panel + layout.groups_offset + g * layout.group_bytes;
  const F32V minus_zero = Set(layout.bits == 4 ? -8.0F : -128.0F);
  GroupScales<kVectors> result;
  if (layout.groups_per_block > 0) {
    const int64_t block = g / layout.groups_per_block;
    const Fp16* units =
        reinterpret_cast<const Fp16*>(panel) + block * kPanelColumns * (layout.has_minimum ? 2 : 1) + column;
    const int8_t* scales = reinterpret_cast<const int8_t*>(group) + column;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F32V factor = Load(factors + column + v * kLanes);
      result.scale[v] = Mul(LoadInt8(scales + v * kLanes), Mul(LoadFp16(units + v * kLanes), factor));
      result.minimum[v] = layout.has_minimum ? Mul(LoadInt8(scales + kPanelColumns + v * kLanes),
                                                   Mul(LoadFp16(units + kPanelColumns + v * kLanes), factor))
                                             : Mul(result.scale[v], minus_zero);
    }
    return result;
  }
  const Fp16* scales = reinterpret_cast<const Fp16*>(group) + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const F32V factor = Load(factors + column + v * kLanes);
    result.scale[v] = Mul(LoadFp16(scales + v * kLanes), factor);
    if (layout.has_minimum) {
      const F32V number = LoadFp16(scales + kPanelColumns + v * kLanes);
      result.minimum[v] = Mul(number, layout.has_zero_points ? result.scale[v] : factor);
    } else {
      result.minimum[v] = Mul(result.scale[v], minus_zero);
    }
  }
  return result;
}

// Code k of a word, as a number.
template <int kBits>
TANDEM_SIMD_INLINE F32V CodeAt(PairV words, int k) {
  const int shift = k / 2 * kBits + k % 2 * 16;
  const PairV mask = SetPair((1U << kBits) - 1U);
  return FromInts(AndPairs(ShiftRight(words, static_cast<unsigned>(shift)), mask));
}

template <int kBits>
constexpr int kCodesPerWord = 32 / kBits;

// What a pass over a panel needs: kRows rows of x, the columns from `column` on.
template <typename X>
struct PanelPass {
  const X* x = nullptr;
  int64_t x_stride = 0;
  const float* x_sums = nullptr;  // of the first row
  const std::byte* panel = nullptr;
  const float* factors = nullptr;  // of the panel
  int64_t column = 0;
};

// acc += x W, a multiply-add a weight.
template <typename X, int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyDequantized(const QuantizedLayout& layout, const PanelPass<X>& pass,
                                            Accumulators<kRows, kVectors>& acc) {
  const std::byte* group = pass.panel + layout.groups_offset;
  const X* x = pass.x;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    const auto scales = LoadScales<kVectors>(layout, pass.panel, g, pass.factors, pass.column);
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * pass.column;
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord<kBits>) {
      PairV codes[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) codes[v] = LoadPairs(words + 2 * v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerWord<kBits>; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const F32V weight = Fma(CodeAt<kBits>(codes[v], i), scales.scale[v], scales.minimum[v]);
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

#if defined(__AVX512BF16__)

// bf16 of 0 .. 15, twice: a lookup takes five bits of an index.
alignas(64) constexpr uint16_t kSmallNumbers[32] = {
    0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
    0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
    0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};

// Codes 2 i and 2 i + 1 of a word as a pair of bf16, exactly.
template <int kBits>
TANDEM_SIMD_INLINE __m512i CodePairAt(__m512i words, int i, __m512i small_numbers) {
  if constexpr (kBits == 4) {
    return _mm512_permutexvar_epi16(_mm512_srli_epi32(words, static_cast<unsigned>(4 * i)), small_numbers);
  } else {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(8 * i)), byte);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(16 + 8 * i)), byte);
    const __m512i even_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(even));
    const __m512i odd_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(odd));
    return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(even_bits, 16), odd_bits);
  }
}

// acc += x W, by sums of x times codes: exact weights, and a multiply-add for two of them.
template <int kBits, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyCodes(const QuantizedLayout& layout, const PanelPass<uint16_t>& pass,
                                      Accumulators<kRows, kVectors>& acc) {
  const __m512i small_numbers = _mm512_load_si512(kSmallNumbers);
  const std::byte* group = pass.panel + layout.groups_offset;
  const uint16_t* x = pass.x;
  for (int64_t g = 0; g < layout.num_groups; ++g, group += layout.group_bytes) {
    Accumulators<kRows, kVectors> sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums.value[r][v] = Zero();
    }
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * pass.column;
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord<kBits>) {
      _mm_prefetch(reinterpret_cast<const char*>(words) + 4096, _MM_HINT_T0);
      if constexpr (kVectors > 1) _mm_prefetch(reinterpret_cast<const char*>(words) + 4096 + 64, _MM_HINT_T0);
      if constexpr (kVectors > 2) {
        _mm_prefetch(reinterpret_cast<const char*>(words) + 4096 + 128, _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(words) + 4096 + 192, _MM_HINT_T0);
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const __m512i codes = LoadPairs(words + 2 * v * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kCodesPerWord<kBits> / 2; ++i) {
          const __m512i pair = CodePairAt<kBits>(codes, i, small_numbers);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sums.value[r][v] =
                DotPairs(sums.value[r][v], pair, SetPair(PairAt(x + r * pass.x_stride + 2 * i)));
          }
        }
      }
      x += kCodesPerWord<kBits>;
      words += kPairsPerPanelRow;
    }
    const auto scales = LoadScales<kVectors>(layout, pass.panel, g, pass.factors, pass.column);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32V x_sum = Set(pass.x_sums[r * layout.num_groups + g]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        acc.value[r][v] =
            Fma(sums.value[r][v], scales.scale[v], Fma(x_sum, scales.minimum[v], acc.value[r][v]));
      }
    }
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
                             tile.x_sums == nullptr ? nullptr : tile.x_sums + row * layout.num_groups,
                             tile.panels + panel * layout.panel_bytes,
                             tile.factors + panel * kPanelColumns,
                             column};
#if defined(__AVX512BF16__)
  if constexpr (sizeof(X) == 2) {
    MultiplyCodes<kBits, kRows, kVectors>(layout, pass, acc);
  } else {
    MultiplyDequantized<X, kBits, kRows, kVectors>(layout, pass, acc);
  }
#else
  MultiplyDequantized<X, kBits, kRows, kVectors>(layout, pass, acc);
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

// A unit of 32 columns has 2 vectors of 16 lanes, or 4 of 8.
constexpr int kVectorsPerUnit = static_cast<int>(kColumnsPerUnit) / kLanes;
constexpr int kQuantizedVectors = kVectorsPerUnit < 2 ? kVectorsPerUnit : 2;
constexpr int kQuantizedGroupRows = kNumVectorRegisters >= 32 ? 6 : 4;

template <typename X, typename Y, int kBits, int kRows>
void QuantizedRowGroup(const QuantizedTile& tile, int64_t row) {
  for (int64_t unit = tile.first_unit; unit < tile.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t column = unit % kUnitsPerPanel * kColumnsPerUnit;
    // Few rows: a panel at once, so that it is read from the first to the last byte.
    constexpr int kPanelVectors = static_cast<int>(kPanelColumns) / kLanes;
    if constexpr (kRows <= 3 && kPanelVectors <= 4) {
      if (column == 0 && unit + kUnitsPerPanel <= tile.end_unit) {
        QuantizedColumns<X, Y, kBits, kRows, kPanelVectors>(tile, row, panel, 0);
        unit += kUnitsPerPanel;
        continue;
      }
    }
    for (int64_t c = column; c < column + kColumnsPerUnit; c += kQuantizedVectors * kLanes)
      QuantizedColumns<X, Y, kBits, kRows, kQuantizedVectors>(tile, row, panel, c);
    ++unit;
  }
}

template <typename X, typename Y, int kBits>
void QuantizedRowsOf(const QuantizedTile& tile) {
  const int64_t num_groups = (tile.num_rows + kQuantizedGroupRows - 1) / kQuantizedGroupRows;
  int64_t row = 0;
  for (int64_t group = 0; group < num_groups; ++group) {
    const int64_t rows = tile.num_rows / num_groups + (group < tile.num_rows % num_groups ? 1 : 0);
    switch (rows) {
      case 1:
        QuantizedRowGroup<X, Y, kBits, 1>(tile, row);
        break;
      case 2:
        QuantizedRowGroup<X, Y, kBits, 2>(tile, row);
        break;
      case 3:
        QuantizedRowGroup<X, Y, kBits, 3>(tile, row);
        break;
      case 4:
        QuantizedRowGroup<X, Y, kBits, 4>(tile, row);
        break;
      default:
        if constexpr (kQuantizedGroupRows > 4) {
          if (rows == 5) {
            QuantizedRowGroup<X, Y, kBits, 5>(tile, row);
          } else {
            QuantizedRowGroup<X, Y, kBits, 6>(tile, row);
          }
        }
    }
    row += rows;
  }
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
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * column;
    for (int64_t end = layout.group_size; end > 0; end -= kCodesPerWord<kBits>) {
      const PairV codes = LoadPairs(words);
#pragma GCC unroll 8
      for (int i = 0; i < kCodesPerWord<kBits>; ++i) {
        const F32V weight = Fma(CodeAt<kBits>(codes, i), scales.scale[0], scales.minimum[0]);
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
    const auto* words = reinterpret_cast<const uint16_t*>(group + layout.words_offset) + 2 * column;
    for (int64_t left = layout.group_size; left > 0; left -= kCodesPerWord<kBits>) {
      const __m512i codes = LoadPairs(words);
#pragma GCC unroll 4
      for (int i = 0; i < kCodesPerWord<kBits>; i += 2) {
        const F32V even = Fma(LookUpCode<kBits>(codes, i, numbers), scales.scale[0], scales.minimum[0]);
        const F32V odd = Fma(LookUpCode<kBits>(codes, i + 1, numbers), scales.scale[0], scales.minimum[0]);
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

// num_groups groups of group_size (a multiple of 16) values.
inline void SumGroups(const uint16_t* row, int64_t group_size, int64_t num_groups, float* sums) {
  for (int64_t g = 0; g < num_groups; ++g) {
    F32V sum = Zero();
    for (int64_t k = 0; k < group_size; k += kLanes) sum = Add(sum, LoadBf16(row + k));
    sums[g] = SumLanes(sum);
    row += group_size;
  }
}

constexpr QuantizedKernels kQuantizedKernels = {
    .f32 = RunQuantizedTile<float, float>,
    .bf16_to_f32 = RunQuantizedTile<uint16_t, float>,
    .bf16_to_bf16 = RunQuantizedTile<uint16_t, uint16_t>,
    .max_rows_f32 = kQuantizedGroupRows,
#if defined(__AVX512BF16__)
    .max_rows_bf16 = 4 * kQuantizedGroupRows,
#else
    .max_rows_bf16 = kQuantizedGroupRows,
#endif
    .dequantize_f32 = DequantizePanel<float>,
    .dequantize_bf16 = DequantizePanel<uint16_t>,
    .sum_groups = SumGroups,
};

}  // namespace
}  // namespace tandem
