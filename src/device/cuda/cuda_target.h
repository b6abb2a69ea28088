// What kernels must know of the GPU.
#pragma once

namespace tandem {

// The part of the GPU that a stream runs on.
struct CudaTarget {
  int compute_capability = 0;          // 90 for 9.0
  int num_sms = 0;                     // of the slice if there is one, else of the GPU
  int max_shared_bytes_per_block = 0;  // opt-in maximum
  int l2_bytes = 0;
};

}  // namespace tandem
