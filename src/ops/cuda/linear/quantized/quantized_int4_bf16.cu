#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt4Bf16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchInt4<__nv_bfloat16>(stream, layout, product);
}

}  // namespace tandem
