// Streamed products of codes of 8 bits, fp16. For compute capability 9.0a only.
#include "ops/cuda/linear/quantized/streamed_codes_kernel.cuh"

namespace tandem {

void LaunchStreamedInt8Fp16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes) {
  LaunchStreamedCodesGroups<Fp16, 8, 16, 32, 64>(stream, group_size, x, codes);
}

}  // namespace tandem
