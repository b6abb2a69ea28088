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

cudaError_t FindDeviceCode() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, StampKernel);
}

}  // namespace tandem
