#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsNeonBf16() {
  return kQuantizedKernels;
}

}  // namespace tandem
