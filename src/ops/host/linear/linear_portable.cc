#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsPortable() {
  return kLinearKernels;
}

}  // namespace tandem
