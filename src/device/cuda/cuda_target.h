// What kernels must know of the GPU.
#pragma once

#include <algorithm>

namespace tandem {

// The part of the GPU that a stream runs on.
struct CudaTarget {
  // 90 for 9.0. Of the GPU, or of the code that runs there if that is of an earlier one: PTX that the driver
  // has compiled for a later GPU has no instruction of that.
  int compute_capability = 0;
  int num_sms = 0;                     // of the slice if there is one, else of the GPU
  int max_shared_bytes_per_block = 0;  // opt-in maximum
  int l2_bytes = 0;
};

// A GPU as a program may use it whose kernels are written for an architecture (90 for 9.0). What is written
// for 7.5 counts on the shared memory that all GPUs of 7.5 have, and takes no more.
constexpr CudaTarget LimitToArchitecture(CudaTarget gpu, int architecture) {
  constexpr int kAmpere = 80;
  constexpr int kTuringSharedBytes = 64 << 10;
  gpu.compute_capability = std::min(gpu.compute_capability, architecture);
  if (gpu.compute_capability < kAmpere) {
    gpu.max_shared_bytes_per_block = std::min(gpu.max_shared_bytes_per_block, kTuringSharedBytes);
  }
  return gpu;
}

}  // namespace tandem
