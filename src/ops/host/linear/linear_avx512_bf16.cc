#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsAvx512Bf16() {
  static const LinearKernels kernels = LinearKernelsWith(LinearKernelsAvx512().f32);
  return kernels;
}

}  // namespace tandem
