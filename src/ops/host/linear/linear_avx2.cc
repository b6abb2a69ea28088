#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsAvx2() {
  return kLinearKernels;
}

}  // namespace tandem
