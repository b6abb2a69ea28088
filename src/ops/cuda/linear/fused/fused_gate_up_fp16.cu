// Fused gate-up product, fp16. For compute capability 9.0a only.
#include "ops/cuda/linear/fused/fused_gate_up.cuh"

namespace tandem {

void LaunchFusedGateUpFp16(CudaStream& stream, FusedGateUp kernel, const MatrixView& x,
                           const MatrixView& weight, const MatrixView& y, int group_columns) {
  LaunchFusedKernel<Fp16>(stream, kernel, x, weight, y, group_columns);
}

}  // namespace tandem
