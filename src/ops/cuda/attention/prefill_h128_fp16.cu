// Prefill attention, fp16, heads of 128.
#include "ops/cuda/attention/prefill_fa2.cuh"

namespace tandem {

void LaunchPrefillH128Fp16(CudaStream& stream, const PrefillLaunch& launch) {
  LaunchPrefill<half, 128>(stream, launch);
}

}  // namespace tandem
