// FA3 prefill attention, bf16, heads of 128. For compute capability 9.0a only.
#include "ops/cuda/attention/prefill_fa3.cuh"

namespace tandem {

void LaunchLongPrefillH128Bf16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchLongPrefill<cutlass::bfloat16_t, 128, 128, 96>(stream, launch);
}

}  // namespace tandem
