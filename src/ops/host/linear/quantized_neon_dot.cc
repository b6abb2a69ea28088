#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsNeonDot() {
  return kQuantizedKernels;
}

}  // namespace tandem
