#include "ops/cuda/linear/fp8/fp8_kernel.cuh"

namespace tandem {

void LaunchFp8Fp16(CudaStream& stream, const Fp8Product& product) {
  LaunchFp8<__half>(stream, product);
}

}  // namespace tandem
