#include "ops/cuda/attention/decode_attention_kernel.cuh"

namespace tandem {

void LaunchDecodeAttentionBf16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                               const DecodeAttentionParams* params, int group) {
  decode::LaunchType<__nv_bfloat16>(stream, head_dim, launch, params, group);
}

}  // namespace tandem
