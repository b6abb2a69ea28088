// Prefill attention, bf16, heads of 64.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH64Bf16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<__nv_bfloat16, 64>(stream, launch);
}

}  // namespace tandem
