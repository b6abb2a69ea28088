// Pairs of 16-bit elements as the fragments of tensor cores have them. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem {

// T: __nv_bfloat16 or __half. Each to nearest even.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// Of an 8x8 matrix of 16-bit elements that is spread over the warp, two neighbours of row lane / 4 a thread:
// the same of its transpose.
__device__ __forceinline__ uint32_t TransposeBlock(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace tandem
