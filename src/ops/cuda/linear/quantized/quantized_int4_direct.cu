#include "ops/cuda/linear/quantized/quantized_direct.cuh"

namespace tandem {

void LaunchQuantizedInt4Direct(CudaStream& stream, const CodeLayout& layout,
                               const QuantizedProduct& product) {
  LaunchDirectCodes<4, 16, 32, 128>(stream, layout, product);
}

}  // namespace tandem
