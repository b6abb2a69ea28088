#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt4Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchInt4<__half>(stream, layout, product);
}

}  // namespace tandem
