// Products of the tensor cores with few rows. For .cu files; products of bf16 on compute capability 8.0, of
// fp16 on 7.5 too.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/register_loads.cuh"

namespace tandem {

// sums[16 outputs, 8 rows] += a[16, 16] b[16, 8]
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                            uint32_t a3, uint32_t b0, uint32_t b1);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void MultiplyAdd<__nv_bfloat16>(float (&sums)[4], uint32_t a0, uint32_t a1,
                                                           uint32_t a2, uint32_t a3, uint32_t b0,
                                                           uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif
template <>
__device__ __forceinline__ void MultiplyAdd<__half>(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                    uint32_t a3, uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  // In halves of the 16.
  MultiplyAdd8(sums, a0, a1, b0);
  MultiplyAdd8(sums, a2, a3, b1);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

__device__ __forceinline__ void StoreRounded(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16(value);
}
__device__ __forceinline__ void StoreRounded(__half* to, float value) {
  *to = __float2half(value);
}
// y[at] = value. y: fp32, or else of T.
template <typename T>
__device__ __forceinline__ void StoreResult(void* y, bool is_f32, int64_t at, float value) {
  if (is_f32) {
    static_cast<float*>(y)[at] = value;
  } else {
    StoreRounded(static_cast<T*>(y) + at, value);
  }
}

}  // namespace tandem
