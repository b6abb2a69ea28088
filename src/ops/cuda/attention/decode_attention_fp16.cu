#include "ops/cuda/attention/decode_attention_kernel.cuh"

namespace tandem {

void LaunchDecodeAttentionFp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                               const DecodeAttentionParams* params, int group) {
  decode::LaunchType<__half>(stream, head_dim, launch, params, group);
}

}  // namespace tandem
