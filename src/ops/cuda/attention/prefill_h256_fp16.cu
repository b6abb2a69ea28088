// Prefill attention, fp16, heads of 256.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH256Fp16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<half, 256>(stream, launch);
}

}  // namespace tandem
