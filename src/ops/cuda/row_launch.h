// Launching the kernels between matrix products and attention. For .cu files.
#pragma once

#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"

namespace tandem {

// LaunchKernel of a kernel that uses little or no shared memory. It asks for as much of it all the same, as
// the kernels before and after it use: an SM drains before it divides its memory between shared memory and
// the first-level cache in another way.
template <auto kKernel, typename... Arguments>
void LaunchRowKernel(std::string_view op, dim3 grid, dim3 block, CudaStream& stream,
                     Arguments&&... arguments) {
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [] {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  LaunchKernel(op, kKernel, grid, block, 0, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace tandem
