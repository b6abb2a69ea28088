#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/linear_kernels.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float ToFloat(float value) {
  return value;
}
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float ToFloat(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ void Store(float* to, float value) {
  *to = value;
}
__device__ __forceinline__ void Store(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16(value);
}
__device__ __forceinline__ void Store(__half* to, float value) {
  *to = __float2half(value);
}

template <typename T>
__global__ void AddBiasKernel(T* y, int64_t y_stride, int64_t rows, int64_t cols, const float* bias) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  const float value = bias[col];
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* at = y + row * y_stride + col;
    Store(at, ToFloat(*at) + value);
  }
}

__global__ void ReadAllKernel(const uint4* data, int64_t count, uint32_t* sink) {
  WaitForPredecessors();
  uint32_t seen = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const uint4 value = data[i];
    seen |= value.x | value.y | value.z | value.w;
  }
  // Practically never: the reads must not be optimized away.
  if (seen == 0x9e3779b9U) *sink = seen;
}

template <typename T>
void AddBias(CudaStream& stream, const MatrixView& y, const float* bias) {
  const auto blocks = static_cast<unsigned>((y.cols + kThreads - 1) / kThreads);
  const auto row_blocks = static_cast<unsigned>(std::min<int64_t>(y.rows, 1024));
  LaunchKernel("linear: bias", AddBiasKernel<T>, dim3(blocks, row_blocks), dim3(kThreads), 0, stream,
               static_cast<T*>(y.data), y.row_stride, y.rows, y.cols, bias);
}

}  // namespace

void LaunchAddBias(CudaStream& stream, const MatrixView& y, const float* bias) {
  if (y.rows == 0) return;
  switch (y.dtype) {
    case DType::kF32:
      return AddBias<float>(stream, y, bias);
    case DType::kBF16:
      return AddBias<__nv_bfloat16>(stream, y, bias);
    case DType::kF16:
      return AddBias<__half>(stream, y, bias);
    default:
      break;
  }
  TANDEM_CHECK(false, "bias of a {} matrix", DTypeName(y.dtype));
}

void LaunchReadAll(CudaStream& stream, const void* data, size_t size_bytes, void* sink) {
  constexpr int kBlocksPerSm = 8;
  LaunchKernel("read all", ReadAllKernel, dim3(static_cast<unsigned>(stream.target().num_sms * kBlocksPerSm)),
               dim3(kThreads), 0, stream, static_cast<const uint4*>(data),
               static_cast<int64_t>(size_bytes / sizeof(uint4)), static_cast<uint32_t*>(sink));
}

}  // namespace tandem
