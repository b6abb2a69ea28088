#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsNeon() {
  return kQuantizedKernels;
}

}  // namespace tandem
