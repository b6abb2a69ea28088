// Launching kernels: errors with op and shape, and programmatic dependent launch.
//
// With programmatic dependent launch a kernel is resident before its predecessor in the stream has ended.
// Contract of every kernel launched through LaunchKernel: it calls WaitForPredecessors() before its first
// access to memory that any other kernel writes, and before its first write to global memory. Weights and
// other constants may be read earlier. AllowSuccessors() lets the next kernel start its own prologue.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <string_view>
#include <utility>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

#ifdef __CUDACC__
// Memory written by all earlier kernels of the stream is visible afterwards. Every thread.
__device__ __forceinline__ void WaitForPredecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The successor may start; it still waits for all of this kernel's memory operations.
__device__ __forceinline__ void AllowSuccessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// op: named in the error. cluster: thread blocks that are on neighbouring SMs together; divides grid.
// shared_bytes above 48 KiB: call cudaFuncSetAttribute once before.
template <typename... Parameters, typename... Arguments>
void LaunchClusters(std::string_view op, void (*kernel)(Parameters...), dim3 grid, dim3 cluster, dim3 block,
                    size_t shared_bytes, CudaStream& stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  std::array<cudaLaunchAttribute, 2> attributes = {};
  config.attrs = attributes.data();
  const bool joins = stream.TakeJoin();
  if (stream.target().compute_capability >= 90 && !joins) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster.x * cluster.y * cluster.z > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
  }
  TANDEM_CUDA_CHECK(
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
      "{}: grid {}x{}x{}, block {}, {} bytes of shared memory", op, grid.x, grid.y, grid.z, block.x,
      shared_bytes);
}

// Without clusters.
template <typename... Parameters, typename... Arguments>
void LaunchKernel(std::string_view op, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  size_t shared_bytes, CudaStream& stream, Arguments&&... arguments) {
  LaunchClusters(op, kernel, grid, dim3(1), block, shared_bytes, stream,
                 std::forward<Arguments>(arguments)...);
}
#endif

}  // namespace tandem
