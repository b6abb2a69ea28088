#include "base/check.h"
#include "ops/cuda/attention/decode_direct_kernel.cuh"

namespace tandem {

void LaunchDirectDecodeAttentionFp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                     const DecodeAttentionParams* params, int group) {
  TANDEM_CHECK(head_dim == 64 || head_dim == 128, "decode attention: heads of {}", head_dim);
  using decode::DirectWarpState;
  using decode::LaunchDirectState;
  const bool wide = group > kDecodeHeadTile;
  if (head_dim == 64) {
    wide ? LaunchDirectState<DirectWarpState<64, 2>>(stream, launch, params)
         : LaunchDirectState<DirectWarpState<64, 1>>(stream, launch, params);
  } else {
    wide ? LaunchDirectState<DirectWarpState<128, 2>>(stream, launch, params)
         : LaunchDirectState<DirectWarpState<128, 1>>(stream, launch, params);
  }
}

}  // namespace tandem
