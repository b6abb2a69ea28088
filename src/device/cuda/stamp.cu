#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "device/cuda/stamp.h"

namespace tandem {
namespace {

__global__ void StampKernel(uint64_t* time_ns) {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *time_ns = now;
}

}  // namespace

void LaunchStamp(cudaStream_t stream, uint64_t* time_ns) {
  StampKernel<<<1, 1, 0, stream>>>(time_ns);
  TANDEM_CUDA_CHECK(cudaGetLastError(), "stamp");
}

cudaError_t FindDeviceCode(int* architecture) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, StampKernel);
  if (error == cudaSuccess) *architecture = std::min(attributes.ptxVersion, attributes.binaryVersion);
  return error;
}

}  // namespace tandem
