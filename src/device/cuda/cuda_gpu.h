// Which GPU a thread works with. Only where a process uses several does anybody ask.
#pragma once

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_error.h"

namespace tandem {

// Of a process that uses one.
inline constexpr int kAnyGpu = -1;

// What the calling thread does with the runtime is of this GPU from now on.
inline void UseGpu(int gpu) {
  int current = kAnyGpu;
  TANDEM_CUDA_CHECK(cudaGetDevice(&current));
  if (current != gpu) TANDEM_CUDA_CHECK(cudaSetDevice(gpu), "GPU {}", gpu);
}

}  // namespace tandem
