// Prefill attention, fp16, heads of 64.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH64Fp16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<half, 64>(stream, launch);
}

}  // namespace tandem
