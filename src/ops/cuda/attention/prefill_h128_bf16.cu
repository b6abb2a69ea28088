// Prefill attention, bf16, heads of 128.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH128Bf16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<__nv_bfloat16, 128>(stream, launch);
}

}  // namespace tandem
