#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsAvx2() {
  return kQuantizedKernels;
}

}  // namespace tandem
