// The activation between the products of an MLP. For .cu files.
#pragma once

namespace tandem {

// silu(gate) * up.
__device__ __forceinline__ float SiluMulOne(float gate, float up) {
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

}  // namespace tandem
