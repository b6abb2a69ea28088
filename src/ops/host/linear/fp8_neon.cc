#include "ops/host/linear/fp8_microkernel.h"

namespace tandem {

const QuantizedKernels& Fp8KernelsNeon() {
  return kFp8Kernels;
}

}  // namespace tandem
