// What is made once for each GPU that a process uses: attributes of kernels, which hold for one GPU, and what
// the driver says of them there.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// With static storage. Any thread.
template <typename T>
class PerGpu {
 public:
  // make: run with the stream's GPU as that of the calling thread.
  template <typename Make>
  const T& Of(const CudaStream& stream, const Make& make) {
    stream.handle();
    int gpu = 0;
    TANDEM_CUDA_CHECK(cudaGetDevice(&gpu));
    TANDEM_CHECK(gpu < kMostGpus, "GPU {} of at most {}", gpu, kMostGpus);
    const auto index = static_cast<std::size_t>(gpu);
    std::call_once(made_[index], [&] { values_[index] = make(); });
    return values_[index];
  }

 private:
  static constexpr int kMostGpus = 64;
  std::array<std::once_flag, kMostGpus> made_;
  std::array<T, kMostGpus> values_ = {};
};

}  // namespace tandem
