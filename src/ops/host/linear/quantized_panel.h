// What passes over the panels of a quantized weight have in common: scales, codes, rows of x.
#pragma once

#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_kernels.h"
#include "simd/multiply_add.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kPairsPerPanelRow = 2 * kPanelColumns;  // 16-bit halves of a row of words

template <int kBits>
constexpr int kCodesPerWord = 32 / kBits;

constexpr int ZeroCode(int64_t bits) {
  return bits == 4 ? 8 : 128;
}

template <int kVectors>
struct GroupVectors {
  F32V value[kVectors];
};

// The units of group g's block, with the factors of the columns from `column` of the panel on. kWhich: 0 of
// scales, 1 of minimums.
template <int kWhich, int kVectors>
TANDEM_SIMD_INLINE GroupVectors<kVectors> LoadUnits(const QuantizedLayout& layout, const std::byte* panel,
                                                    int64_t g, const float* factors, int64_t column) {
  const int64_t line = g / layout.groups_per_block * (layout.has_minimum ? 2 : 1) + kWhich;
  const Fp16* units = reinterpret_cast<const Fp16*>(panel) + line * kPanelColumns + column;
  GroupVectors<kVectors> result;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v)
    result.value[v] = Mul(LoadFp16(units + v * kLanes), Load(factors + column + v * kLanes));
  return result;
}

// Scales of group g of the columns from `column` of the panel on: numbers that fp32 holds exactly.
template <int kVectors>
TANDEM_SIMD_INLINE GroupVectors<kVectors> LoadScales(const QuantizedLayout& layout, const std::byte* panel,
                                                     int64_t g, const float* factors, int64_t column) {
  const std::byte* group = panel + layout.groups_offset + g * layout.group_bytes;
  GroupVectors<kVectors> result;
  if (layout.groups_per_block > 0) {
    const int8_t* multiples = reinterpret_cast<const int8_t*>(group) + column;
    result = LoadUnits<0, kVectors>(layout, panel, g, factors, column);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      result.value[v] = Mul(LoadInt8(multiples + v * kLanes), result.value[v]);
    return result;
  }
  const Fp16* scales = reinterpret_cast<const Fp16*>(group) + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v)
    result.value[v] = Mul(LoadFp16(scales + v * kLanes), Load(factors + column + v * kLanes));
  return result;
}

// Their minimums, exactly too: what a code of zero stands for.
template <int kVectors>
TANDEM_SIMD_INLINE GroupVectors<kVectors> LoadMinimums(const QuantizedLayout& layout, const std::byte* panel,
                                                       int64_t g, const float* factors, int64_t column,
                                                       const GroupVectors<kVectors>& scales) {
  GroupVectors<kVectors> result;
  if (!layout.has_minimum) {
    const F32V minus_zero = Set(static_cast<float>(-ZeroCode(layout.bits)));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) result.value[v] = Mul(scales.value[v], minus_zero);
    return result;
  }
  const std::byte* group = panel + layout.groups_offset + g * layout.group_bytes;
  if (layout.groups_per_block > 0) {
    const int8_t* multiples = reinterpret_cast<const int8_t*>(group) + kPanelColumns + column;
    result = LoadUnits<1, kVectors>(layout, panel, g, factors, column);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      result.value[v] = Mul(LoadInt8(multiples + v * kLanes), result.value[v]);
    return result;
  }
  const Fp16* numbers = reinterpret_cast<const Fp16*>(group) + kPanelColumns + column;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    result.value[v] = Mul(LoadFp16(numbers + v * kLanes),
                          layout.has_zero_points ? scales.value[v] : Load(factors + column + v * kLanes));
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

// What a pass over a panel needs: kRows rows of x, the columns from `column` on.
template <typename X>
struct PanelPass {
  const X* x = nullptr;
  int64_t x_stride = 0;
  const float* group_sums = nullptr;    // of the first row, as QuantizedTile has them
  const int32_t* first_sums = nullptr;  // likewise
  const std::byte* panel = nullptr;
  const float* factors = nullptr;  // of the panel
  int64_t column = 0;
};

}  // namespace
}  // namespace tandem
