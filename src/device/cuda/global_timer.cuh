// The GPU's clock in a kernel: the one that Stream::Stamp reads.
#pragma once

#include <cstdint>

namespace tandem {

__device__ __forceinline__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace tandem
