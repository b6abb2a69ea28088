// Streamed products, fp16. For compute capability 9.0a only.
#include "ops/cuda/linear/streamed/streamed_kernel.cuh"

namespace tandem {

void LaunchStreamedFp16(CudaStream& stream, StreamedLinear kernel, const StreamedMaps& maps,
                        const StreamedArguments& arguments) {
  LaunchStreamedKernel<Fp16>(stream, kernel, maps, arguments);
}

}  // namespace tandem
