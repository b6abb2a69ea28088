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

// Scales of the columns from `column` of the panel on; group: its first byte.
template <int kVectors>
TANDEM_SIMD_INLINE GroupVectors<kVectors> LoadScales(const std::byte* group, const float* factors,
                                                     int64_t column) {
  const Fp16* scales = reinterpret_cast<const Fp16*>(group) + column;
  GroupVectors<kVectors> result;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v)
    result.value[v] = Mul(LoadFp16(scales + v * kLanes), Load(factors + column + v * kLanes));
  return result;
}

// Their minimums: what a code of zero stands for.
template <int kVectors>
TANDEM_SIMD_INLINE GroupVectors<kVectors> LoadMinimums(const QuantizedLayout& layout, const std::byte* group,
                                                       const float* factors, int64_t column,
                                                       const GroupVectors<kVectors>& scales) {
  const Fp16* minimums = reinterpret_cast<const Fp16*>(group) + kPanelColumns + column;
  const F32V minus_zero = Set(static_cast<float>(-ZeroCode(layout.bits)));
  GroupVectors<kVectors> result;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    result.value[v] = layout.has_minimum
                          ? Mul(LoadFp16(minimums + v * kLanes), Load(factors + column + v * kLanes))
                          : Mul(scales.value[v], minus_zero);
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
