#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsAvx512Bf16() {
  return kQuantizedKernels;
}

}  // namespace tandem
