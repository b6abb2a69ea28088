#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsAvx512() {
  return kQuantizedKernels;
}

}  // namespace tandem
