#include "ops/host/linear/linear_microkernel.h"

namespace tandem {

const LinearKernels& LinearKernelsNeon() {
  static constexpr LinearKernels kernels = LinearKernelsWith(RunLinearTile<float, float>);
  return kernels;
}

}  // namespace tandem
