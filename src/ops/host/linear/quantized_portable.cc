#include "ops/host/linear/quantized_microkernel.h"

namespace tandem {

const QuantizedKernels& QuantizedKernelsPortable() {
  return kQuantizedKernels;
}

}  // namespace tandem
