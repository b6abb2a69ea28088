// FA3 prefill attention, fp16, heads of 128. For compute capability 9.0a only.
#include "ops/cuda/attention/prefill_fa3.cuh"

namespace tandem {

void LaunchLongPrefillH128Fp16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchLongPrefill<cutlass::half_t, 128, 128, 96>(stream, launch);
}

}  // namespace tandem
