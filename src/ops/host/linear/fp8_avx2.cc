#include "ops/host/linear/fp8_microkernel.h"

namespace tandem {

const QuantizedKernels& Fp8KernelsAvx2() {
  return kFp8Kernels;
}

}  // namespace tandem
