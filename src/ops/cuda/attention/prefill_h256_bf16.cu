// Prefill attention, bf16, heads of 256.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH256Bf16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<__nv_bfloat16, 256>(stream, launch);
}

}  // namespace tandem
