#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/attention/prefill_merge.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
// 2 ^ -kNegligible is zero in fp32.
constexpr float kNegligible = 150.0F;

__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float ToFloat(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ void FromFloat(float value, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void FromFloat(float value, __half* out) {
  *out = __float2half_rn(value);
}

// A thread makes 8 elements of a head. All threads of a head read the same few weights.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    MergePrefillKernel(const Element* __restrict__ partial, const float* __restrict__ log_sum_exp,
                       Element* __restrict__ out, const int32_t* __restrict__ merge_row,
                       const int32_t* __restrict__ merge_indptr, int64_t num_rows, int32_t num_heads,
                       int32_t head_dim) {
  const int32_t vectors_per_head = head_dim / 8;
  const int32_t vectors_per_row = num_heads * vectors_per_head;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  WaitForPredecessors();
  if (vector < num_rows * vectors_per_row) {
    const int64_t row = vector / vectors_per_row;
    const int32_t in_row = static_cast<int32_t>(vector - row * vectors_per_row);
    const int32_t head = in_row / vectors_per_head;
    const int32_t begin = merge_indptr[row];
    const int32_t end = merge_indptr[row + 1];

    float maximum = -INFINITY;
    for (int32_t i = begin; i < end; ++i) {
      maximum = fmaxf(maximum, log_sum_exp[static_cast<int64_t>(i) * num_heads + head]);
    }
    float sums[8] = {};
    float total = 0.0F;
    for (int32_t i = begin; i < end; ++i) {
      const float exponent = log_sum_exp[static_cast<int64_t>(i) * num_heads + head];
      if (exponent < maximum - kNegligible) continue;
      const float weight = exp2f(exponent - maximum);
      const uint4 bits =
          reinterpret_cast<const uint4*>(partial)[static_cast<int64_t>(i) * vectors_per_row + in_row];
      const Element* values = reinterpret_cast<const Element*>(&bits);
      total += weight;
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j] += weight * ToFloat(values[j]);
    }
    uint4 bits;
    Element* values = reinterpret_cast<Element*>(&bits);
    const float scale = total > 0.0F ? 1.0F / total : 0.0F;
#pragma unroll
    for (int j = 0; j < 8; ++j) FromFloat(sums[j] * scale, &values[j]);
    reinterpret_cast<uint4*>(out)[static_cast<int64_t>(merge_row[row]) * vectors_per_row + in_row] = bits;
  }
  AllowSuccessors();
}

template <typename Element>
void Launch(CudaStream& stream, const PrefillMerge& merge) {
  const int64_t num_vectors = merge.num_rows * merge.num_heads * (merge.head_dim / 8);
  LaunchKernel("merge of split attention", MergePrefillKernel<Element>,
               dim3(static_cast<unsigned>((num_vectors + kThreads - 1) / kThreads)), dim3(kThreads), 0,
               stream, static_cast<const Element*>(merge.partial), merge.log_sum_exp,
               static_cast<Element*>(merge.out), merge.merge_row, merge.merge_indptr, merge.num_rows,
               static_cast<int32_t>(merge.num_heads), static_cast<int32_t>(merge.head_dim));
}

}  // namespace

void MergePrefill(CudaStream& stream, const PrefillMerge& merge) {
  TANDEM_CHECK(merge.head_dim % 8 == 0, "merge of split attention: heads of {}", merge.head_dim);
  if (merge.num_rows == 0) return;
  if (merge.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, merge);
  } else {
    TANDEM_CHECK(merge.dtype == DType::kF16, "merge of split attention: {}", DTypeName(merge.dtype));
    Launch<__half>(stream, merge);
  }
}

}  // namespace tandem
