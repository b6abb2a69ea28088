#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "device/cuda/global_timer.cuh"
#include "device/cuda/stamp.h"

namespace tandem {
namespace {

__global__ void StampKernel(uint64_t* time_ns) {
  *time_ns = NowNs();
}

__global__ void DelayKernel(uint64_t time_ns) {
  const uint64_t begin = NowNs();
  while (NowNs() - begin < time_ns) {
  }
}

}  // namespace

void LaunchStamp(cudaStream_t stream, uint64_t* time_ns) {
  StampKernel<<<1, 1, 0, stream>>>(time_ns);
  TANDEM_CUDA_CHECK(cudaGetLastError(), "stamp");
}

void LaunchDelay(cudaStream_t stream, uint64_t time_ns) {
  DelayKernel<<<1, 1, 0, stream>>>(time_ns);
  TANDEM_CUDA_CHECK(cudaGetLastError(), "delay of {} ns", time_ns);
}

cudaError_t FindDeviceCode(int* architecture) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, StampKernel);
  if (error == cudaSuccess) *architecture = std::min(attributes.ptxVersion, attributes.binaryVersion);
  return error;
}

}  // namespace tandem
