#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsNeonBf16() {
  static const LinearKernels kernels = LinearKernelsWith(LinearKernelsNeon().f32);
  return kernels;
}

}  // namespace tandem
