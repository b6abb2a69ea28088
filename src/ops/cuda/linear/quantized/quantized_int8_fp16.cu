#include "ops/cuda/linear/quantized/quantized_kernel.cuh"

namespace tandem {

void LaunchQuantizedInt8Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  using T = __half;
  switch (layout.group_size) {
    case 16:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<8, 16, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<8, 16, false>>(stream, product);
    case 32:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<8, 32, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<8, 32, false>>(stream, product);
    case 64:
      return layout.has_minimum ? LaunchFormat<T, RecordFormat<8, 64, true>>(stream, product)
                                : LaunchFormat<T, RecordFormat<8, 64, false>>(stream, product);
    default:
      break;
  }
  TANDEM_CHECK(false, "codes of 8 bits in groups of {}", layout.group_size);
}

}  // namespace tandem
