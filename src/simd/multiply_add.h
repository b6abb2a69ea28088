// The inner step of the matrix products and of attention: a few rows of x times a few vectors of w.
#pragma once

#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// Accumulators of a group: rows x vectors, chosen to leave registers for weights and one value of x.
constexpr int kGroupRows = kNumVectorRegisters >= 32 ? 6 : 4;
constexpr int kGroupVectors = kNumVectorRegisters >= 32 ? 4 : 2;

template <int kRows, int kVectors>
struct Accumulators {
  F32V value[kRows][kVectors];
};

// One multiply-add step: one k in fp32 and fp16 (x is fp32 then), two in bf16. w: this step's weights, at the
// first column.
template <int kRows, int kVectors, typename W>
TANDEM_SIMD_INLINE void Step(Accumulators<kRows, kVectors>& acc, const float* x, int64_t x_stride,
                             const W* w) {
  F32V weights[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) weights[v] = LoadRow(w + v * kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const F32V value = Set(x[r * x_stride]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[r][v] = Fma(value, weights[v], acc.value[r][v]);
  }
}
template <int kRows, int kVectors>
TANDEM_SIMD_INLINE void StepPair(Accumulators<kRows, kVectors>& acc, const uint32_t (&x)[kRows],
                                 const uint16_t* w) {
  PairV weights[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) weights[v] = LoadPairs(w + v * kLanes * 2);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const PairV value = SetPair(x[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[r][v] = DotPairs(acc.value[r][v], weights[v], value);
  }
}
template <int kRows, int kVectors>
TANDEM_SIMD_INLINE void Step(Accumulators<kRows, kVectors>& acc, const uint16_t* x, int64_t x_stride,
                             const uint16_t* w) {
  uint32_t pairs[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) pairs[r] = PairAt(x + r * x_stride);
  StepPair(acc, pairs, w);
}

// sum + bias, the first num_valid of them, to a row of a product. bias: or nullptr.
template <typename Y>
TANDEM_SIMD_INLINE void FinishOutputs(F32V sum, const float* bias, Y* y, int64_t num_valid) {
  if (bias != nullptr) sum = Add(sum, Load(bias));
  if (num_valid >= kLanes) {
    StoreRow(y, sum);
    return;
  }
  float values[kLanes];
  Store(values, sum);
  for (int64_t i = 0; i < num_valid; ++i) StoreScalar(y + i, values[i]);
}

}  // namespace
}  // namespace tandem
