#include "ops/host/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsAvx512Bf16() {
  return kLinearKernels;
}

}  // namespace tandem
