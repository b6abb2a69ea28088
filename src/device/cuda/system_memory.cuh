// Words that the host, or another GPU, reads and writes as a kernel runs.
#pragma once

#include <cstdint>

namespace tandem {

// What the writer stored before its release can be read afterwards.
__device__ __forceinline__ uint32_t LoadAcquireSystem(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void StoreReleaseSystem(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

}  // namespace tandem
