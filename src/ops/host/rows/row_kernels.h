// Row-wise kernels by instruction set. Pure functions of one thread. Void pointers are fp32 or bf16, as their
// dtype says.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "simd/cpu_isa.h"

namespace tandem {

constexpr int64_t kMaxBlock = 64;   // logits to a value of block_max
constexpr int64_t kSumBlock = 256;  // logits to a value of exp_block_sums

struct RowKernels {
  // residual += delta (unless nullptr); out = residual / rms(residual) * weight.
  void (*add_rms_norm)(float* residual, const void* delta, DType delta_dtype, const float* weight, float eps,
                       int64_t cols, void* out, DType out_dtype) = nullptr;
  // out = silu(gate) * up; gate_up: gate's cols values, then up's.
  void (*silu_mul)(const void* gate_up, DType in_dtype, int64_t cols, void* out, DType out_dtype) = nullptr;
  // In place on one head: RMS norm (unless norm_weight is nullptr), then rotation by cos_sin[head_dim].
  void (*norm_rope)(void* head, DType dtype, int64_t head_dim, const float* norm_weight, float eps,
                    const float* cos_sin) = nullptr;
  // to[i] = from[i], converted.
  void (*convert)(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) = nullptr;

  // Of logits. NaNs count as -inf everywhere.
  float (*max)(const float* logits, int64_t count) = nullptr;
  // The lowest index whose logit is >= bound; count if there is none.
  int64_t (*find_not_less)(const float* logits, int64_t count, float bound) = nullptr;
  int64_t (*count_greater)(const float* logits, int64_t count, float bound) = nullptr;
  // maxima[i] = max of logits [i * kMaxBlock, ...).
  void (*block_max)(const float* logits, int64_t count, float* maxima) = nullptr;
  // Indices and values of all logits >= bound, in order; returns how many. ids and values hold `count`.
  int64_t (*collect_not_less)(const float* logits, int64_t count, float bound, int32_t* ids,
                              float* values) = nullptr;
  // sums[i] = sum of exp((logit - max) * inverse_temperature) of block i, over logits >= bound.
  void (*exp_block_sums)(const float* logits, int64_t count, float max, float inverse_temperature,
                         float bound, float* sums) = nullptr;
  // weights[i] = exp((values[i] - max) * inverse_temperature).
  void (*exp_weights)(const float* values, int64_t count, float max, float inverse_temperature,
                      float* weights) = nullptr;
};

const RowKernels& RowKernelsPortable();
#if defined(__x86_64__)
const RowKernels& RowKernelsAvx2();
const RowKernels& RowKernelsAvx512();
#elif defined(__aarch64__)
const RowKernels& RowKernelsNeon();
#endif
const RowKernels& RowKernelsFor(CpuIsa isa);

}  // namespace tandem
