// Row-wise kernels, compiled once an instruction set (see simd.h).
#pragma once

#include "ops/host/rows/row_kernels.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kNegativeInfinity = -__builtin_inff();

// Sum of squares in a fixed order.
template <typename T>
TANDEM_SIMD_INLINE float SumOfSquares(const T* row, int64_t cols) {
  F32V sum0 = Zero();
  F32V sum1 = Zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= cols; i += 2 * kLanes) {
    const F32V a = LoadRow(row + i);
    const F32V b = LoadRow(row + i + kLanes);
    sum0 = Fma(a, a, sum0);
    sum1 = Fma(b, b, sum1);
  }
  float sum = SumLanes(Add(sum0, sum1));
  for (; i < cols; ++i) {
    const float value = LoadScalar(row + i);
    sum += value * value;
  }
  return sum;
}

TANDEM_SIMD_INLINE float InverseRms(float sum_of_squares, int64_t cols, float eps) {
  return 1.0F / __builtin_sqrtf(sum_of_squares / static_cast<float>(cols) + eps);
}

template <typename T>
void AddRow(float* residual, const T* delta, int64_t cols) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) Store(residual + i, Add(Load(residual + i), LoadRow(delta + i)));
  for (; i < cols; ++i) residual[i] += LoadScalar(delta + i);
}

template <typename Out>
void NormRow(const float* row, const float* weight, float eps, int64_t cols, Out* out) {
  const float factor = InverseRms(SumOfSquares(row, cols), cols, eps);
  const F32V factors = Set(factor);
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    StoreRow(out + i, Mul(Load(weight + i), Mul(Load(row + i), factors)));
  }
  for (; i < cols; ++i) StoreScalar(out + i, weight[i] * (row[i] * factor));
}

void AddRmsNormRow(float* residual, const void* delta, DType delta_dtype, const float* weight, float eps,
                   int64_t cols, void* out, DType out_dtype) {
  if (delta != nullptr) {
    if (delta_dtype == DType::kF32) {
      AddRow(residual, static_cast<const float*>(delta), cols);
    } else {
      AddRow(residual, static_cast<const uint16_t*>(delta), cols);
    }
  }
  if (out_dtype == DType::kF32) {
    NormRow(residual, weight, eps, cols, static_cast<float*>(out));
  } else {
    NormRow(residual, weight, eps, cols, static_cast<uint16_t*>(out));
  }
}

TANDEM_SIMD_INLINE F32V Silu(F32V gate) {
  return Div(gate, Add(Set(1.0F), Exp(Sub(Zero(), gate))));
}

template <typename In, typename Out>
void SiluMulTyped(const In* gate, const In* up, int64_t cols, Out* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    StoreRow(out + i, Mul(Silu(LoadRow(gate + i)), LoadRow(up + i)));
  }
  for (; i < cols; ++i) {
    float value[kLanes];
    Store(value, Mul(Silu(Set(LoadScalar(gate + i))), Set(LoadScalar(up + i))));
    StoreScalar(out + i, value[0]);
  }
}

template <typename In>
void SiluMulIn(const In* gate_up, int64_t cols, void* out, DType out_dtype) {
  if (out_dtype == DType::kF32) {
    SiluMulTyped(gate_up, gate_up + cols, cols, static_cast<float*>(out));
  } else {
    SiluMulTyped(gate_up, gate_up + cols, cols, static_cast<uint16_t*>(out));
  }
}

void SiluMulRow(const void* gate_up, DType in_dtype, int64_t cols, void* out, DType out_dtype) {
  if (in_dtype == DType::kF32) {
    SiluMulIn(static_cast<const float*>(gate_up), cols, out, out_dtype);
  } else {
    SiluMulIn(static_cast<const uint16_t*>(gate_up), cols, out, out_dtype);
  }
}

// Norm and rotation are computed in fp32 and rounded once.
template <typename T>
void NormRope(T* head, int64_t head_dim, const float* norm_weight, float eps, const float* cos_sin) {
  const int64_t half = head_dim / 2;
  const float factor =
      norm_weight == nullptr ? 1.0F : InverseRms(SumOfSquares(head, head_dim), head_dim, eps);
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32V a = LoadRow(head + i);
    F32V b = LoadRow(head + half + i);
    if (norm_weight != nullptr) {
      a = Mul(Load(norm_weight + i), Mul(a, Set(factor)));
      b = Mul(Load(norm_weight + half + i), Mul(b, Set(factor)));
    }
    const F32V cos = Load(cos_sin + i);
    const F32V sin = Load(cos_sin + half + i);
    StoreRow(head + i, Sub(Mul(a, cos), Mul(b, sin)));
    StoreRow(head + half + i, Add(Mul(b, cos), Mul(a, sin)));
  }
  for (; i < half; ++i) {
    float a = LoadScalar(head + i);
    float b = LoadScalar(head + half + i);
    if (norm_weight != nullptr) {
      a = norm_weight[i] * (a * factor);
      b = norm_weight[half + i] * (b * factor);
    }
    StoreScalar(head + i, a * cos_sin[i] - b * cos_sin[half + i]);
    StoreScalar(head + half + i, b * cos_sin[i] + a * cos_sin[half + i]);
  }
}

void NormRopeHead(void* head, DType dtype, int64_t head_dim, const float* norm_weight, float eps,
                  const float* cos_sin) {
  if (dtype == DType::kF32) {
    NormRope(static_cast<float*>(head), head_dim, norm_weight, eps, cos_sin);
  } else {
    NormRope(static_cast<uint16_t*>(head), head_dim, norm_weight, eps, cos_sin);
  }
}

template <typename From, typename To>
void ConvertTyped(const From* from, To* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreRow(to + i, LoadRow(from + i));
  for (; i < count; ++i) StoreScalar(to + i, LoadScalar(from + i));
}

void ConvertRow(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(count) * (from_dtype == DType::kF32 ? 4 : 2));
  } else if (from_dtype == DType::kF32) {
    ConvertTyped(static_cast<const float*>(from), static_cast<uint16_t*>(to), count);
  } else {
    ConvertTyped(static_cast<const uint16_t*>(from), static_cast<float*>(to), count);
  }
}

float MaxLogit(const float* logits, int64_t count) {
  F32V max0 = Set(kNegativeInfinity);
  F32V max1 = max0;
  F32V max2 = max0;
  F32V max3 = max0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {  // Max(value, max): max where value is NaN
    max0 = Max(Load(logits + i), max0);
    max1 = Max(Load(logits + i + kLanes), max1);
    max2 = Max(Load(logits + i + 2 * kLanes), max2);
    max3 = Max(Load(logits + i + 3 * kLanes), max3);
  }
  float max = MaxLane(Max(Max(max0, max1), Max(max2, max3)));
  for (; i < count; ++i) {
    if (logits[i] > max) max = logits[i];
  }
  return max;
}

int64_t FindNotLess(const float* logits, int64_t count, float bound) {
  const F32V bounds = Set(bound);
  int64_t i = 0;
  while (i + kLanes <= count && !AnyNotLess(Load(logits + i), bounds)) i += kLanes;
  for (; i < count; ++i) {
    if (logits[i] >= bound) return i;
  }
  return count;
}

int64_t CountGreater(const float* logits, int64_t count, float bound) {
  int64_t greater = 0;
  for (int64_t i = 0; i < count; ++i) greater += logits[i] > bound ? 1 : 0;
  return greater;
}

void BlockMax(const float* logits, int64_t count, float* maxima) {
  for (int64_t begin = 0; begin < count; begin += kMaxBlock) {
    const int64_t left = count - begin;
    *maxima++ = MaxLogit(logits + begin, left < kMaxBlock ? left : kMaxBlock);
  }
}

int64_t CollectNotLess(const float* logits, int64_t count, float bound, int32_t* ids, float* values) {
  const F32V bounds = Set(bound);
  int64_t found = 0;
  int64_t i = 0;
  while (i < count) {
    if (i + kLanes <= count && !AnyNotLess(Load(logits + i), bounds)) {
      i += kLanes;
      continue;
    }
    const int64_t end = i + kLanes < count ? i + kLanes : count;
    for (; i < end; ++i) {
      if (!(logits[i] >= bound)) continue;
      ids[found] = static_cast<int32_t>(i);
      values[found] = logits[i];
      ++found;
    }
  }
  return found;
}

TANDEM_SIMD_INLINE F32V Weight(F32V logit, float max, float inverse_temperature) {
  return Exp(Mul(Sub(logit, Set(max)), Set(inverse_temperature)));
}

float SumBlock(const float* logits, int64_t count, float max, float inverse_temperature, float bound) {
  const F32V bounds = Set(bound);
  F32V sum = Zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F32V logit = Load(logits + i);
    sum = Add(sum, KeepIfNotLess(logit, bounds, Weight(logit, max, inverse_temperature)));
  }
  float total = SumLanes(sum);
  for (; i < count; ++i) {
    float weight[kLanes];
    Store(weight, Weight(Set(logits[i]), max, inverse_temperature));
    if (logits[i] >= bound) total += weight[0];
  }
  return total;
}

void ExpBlockSums(const float* logits, int64_t count, float max, float inverse_temperature, float bound,
                  float* sums) {
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const int64_t left = count - begin;
    *sums++ = SumBlock(logits + begin, left < kSumBlock ? left : kSumBlock, max, inverse_temperature, bound);
  }
}

void ExpWeights(const float* values, int64_t count, float max, float inverse_temperature, float* weights) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Store(weights + i, Weight(Load(values + i), max, inverse_temperature));
  }
  for (; i < count; ++i) {
    float weight[kLanes];
    Store(weight, Weight(Set(values[i]), max, inverse_temperature));
    weights[i] = weight[0];
  }
}

constexpr RowKernels kRowKernels = {
    .add_rms_norm = AddRmsNormRow,
    .silu_mul = SiluMulRow,
    .norm_rope = NormRopeHead,
    .convert = ConvertRow,
    .max = MaxLogit,
    .find_not_less = FindNotLess,
    .count_greater = CountGreater,
    .block_max = BlockMax,
    .collect_not_less = CollectNotLess,
    .exp_block_sums = ExpBlockSums,
    .exp_weights = ExpWeights,
};

}  // namespace
}  // namespace tandem
