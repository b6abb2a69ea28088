#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsAvx512() {
  return kLinearKernels;
}

}  // namespace tandem
