// Streamed products of codes of 8 bits, bf16. For compute capability 9.0a only.
#include "ops/cuda/linear/quantized/streamed_codes_kernel.cuh"

namespace tandem {

void LaunchStreamedInt8Bf16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes) {
  LaunchStreamedCodesGroups<Bf16, 8, 16, 32, 64>(stream, group_size, x, codes);
}

}  // namespace tandem
