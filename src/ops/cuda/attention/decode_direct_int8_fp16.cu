#include "ops/cuda/attention/decode_direct_coded_state.cuh"
#include "ops/cuda/attention/decode_direct_kernel.cuh"

namespace tandem {

void LaunchDirectDecodeAttentionInt8Fp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                         const DecodeAttentionParams* params, int group) {
  decode::LaunchDirectType<decode::DirectInt8State>(stream, head_dim, launch, params, group);
}

}  // namespace tandem
