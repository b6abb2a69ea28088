#include "ops/cuda/linear/fp8/fp8_kernel.cuh"

namespace tandem {

void LaunchFp8Bf16(CudaStream& stream, const Fp8Product& product) {
  LaunchFp8<__nv_bfloat16>(stream, product);
}

}  // namespace tandem
