// For compute capability 7.5, whose kernels stream memory through registers: 16 bytes a lane, and the tensor
// core's product that it has. For .cu files.
#pragma once

#include <cstdint>

namespace tandem {

// 16 bytes that are read once: past L1, and with what L2 has to fetch beside them. Not moved behind what
// follows it.
__device__ __forceinline__ uint4 LoadOnce(const void* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// 8 and 4 bytes.
__device__ __forceinline__ uint2 LoadOnce8(const void* from) {
  uint2 value;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "l"(from));
  return value;
}
__device__ __forceinline__ uint32_t LoadOnce4(const void* from) {
  uint32_t value;
  asm volatile("ld.global.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}

__device__ __forceinline__ uint32_t WordOf(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// d[16, 8] += a[16, 8] b[8, 8] of fp16. upper: of row lane / 4, lower: of the row 8 below; b: of column
// lane / 4; each elements 2 * (lane % 4) and the next.
__device__ __forceinline__ void MultiplyAdd8(float (&d)[4], uint32_t upper, uint32_t lower, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(upper), "r"(lower), "r"(b));
}

}  // namespace tandem
