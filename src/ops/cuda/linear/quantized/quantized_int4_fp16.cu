#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt4Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  using T = __half;
  switch (layout.group_size) {
    case 16:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<4, 16, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<4, 16, false>>(stream, product);
    case 32:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<4, 32, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<4, 32, false>>(stream, product);
    case 128:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<4, 128, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<4, 128, false>>(stream, product);
    default:
      break;
  }
  TANDEM_CHECK(false, "codes of 4 bits in groups of {}", layout.group_size);
}

}  // namespace tandem
