// Launching a decode kernel, of 8.0 or of 7.5.
#pragma once

#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/attention/decode_attention_kernel.h"

namespace tandem {
namespace decode {

// With params null: prepares instead of launching.
template <auto kKernel>
void LaunchDecodeKernel(CudaStream* stream, const DecodeLaunch& launch, const DecodeAttentionParams* params) {
  if (params == nullptr) {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes)),
                      "decode attention: {} bytes of shared memory", launch.shared_bytes);
    return;
  }
  LaunchKernel("decode attention", kKernel, dim3(static_cast<unsigned>(launch.num_ctas)),
               dim3(static_cast<unsigned>(launch.num_warps * 32)), launch.shared_bytes, *stream, *params);
}

}  // namespace decode
}  // namespace tandem
