// An exchange among the four threads that hold a row of a tensor core's result.
#pragma once

#include <cstdint>

namespace tandem {

// A 4x4 transposition among the four threads of a quad: afterwards words[i] of thread q is what thread i had
// as words[q]. All threads of the warp.
__device__ __forceinline__ void TransposeInQuad(uint32_t (&words)[4], int q) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = (q & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const uint32_t received = __shfl_xor_sync(0xffffffffU, high ? words[i] : words[i + bit], bit);
      words[i] = high ? received : words[i];
      words[i + bit] = high ? words[i + bit] : received;
    }
  }
}

}  // namespace tandem
