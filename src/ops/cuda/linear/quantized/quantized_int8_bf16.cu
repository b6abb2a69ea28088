#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt8Bf16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchInt8<__nv_bfloat16>(stream, layout, product);
}

}  // namespace tandem
