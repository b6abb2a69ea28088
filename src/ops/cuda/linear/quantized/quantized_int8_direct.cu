#include "ops/cuda/linear/quantized/quantized_direct.cuh"

namespace tandem {

void LaunchQuantizedInt8Direct(CudaStream& stream, const CodeLayout& layout,
                               const QuantizedProduct& product) {
  LaunchDirectCodes<8, 16, 32, 64>(stream, layout, product);
}

}  // namespace tandem
