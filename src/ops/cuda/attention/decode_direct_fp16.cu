#include "ops/cuda/attention/decode_direct_kernel.cuh"
#include "ops/cuda/attention/decode_direct_state.cuh"

namespace tandem {

void LaunchDirectDecodeAttentionFp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                     const DecodeAttentionParams* params, int group) {
  decode::LaunchDirectType<decode::DirectWarpState>(stream, head_dim, launch, params, group);
}

}  // namespace tandem
