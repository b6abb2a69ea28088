#include "ops/cuda/attention/decode_attention_kernel.cuh"
#include "ops/cuda/attention/decode_coded_state.cuh"

namespace tandem {

void LaunchDecodeAttentionFp8Bf16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                  const DecodeAttentionParams* params, int group) {
  decode::LaunchType<decode::Fp8WarpState, __nv_bfloat16>(stream, head_dim, launch, params, group);
}

}  // namespace tandem
