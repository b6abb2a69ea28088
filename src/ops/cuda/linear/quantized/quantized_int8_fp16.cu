#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt8Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchInt8<__half>(stream, layout, product);
}

}  // namespace tandem
