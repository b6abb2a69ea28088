// The cuda backend's device: one GPU, or a slice of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "device/cuda/cuda_target.h"
#include "device/device.h"

namespace tandem {

// The GPU is the first one that the driver shows; CUDA_VISIBLE_DEVICES chooses.
struct CudaDeviceOptions {
  // Of the GPU's memory, at most so much is used: the smaller of limit and utilization * total. The context,
  // the libraries' kernels and what others hold count as used.
  int64_t memory_limit_bytes = 0;  // 0: none
  double memory_utilization = 0.9;
  // SMs that everything runs on (a green context); 0: all. Rounded up to what the GPU can cut.
  int sm_limit = 0;
};

// Errors: kUnavailable (no driver, driver too old, no GPU), kUnsupported (architecture not in this build,
// slices not supported), kInvalidArgument with param (sm limit, memory limit out of range).
Result<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);

// CHECKs that device is of the cuda backend.
const CudaTarget& CudaTargetOf(const Device& device);

// Identifies the GPU, its slice and the libraries, for what is kept on disk: "NVIDIA H200-sm90-132".
std::string CudaDeviceKey(const Device& device);

}  // namespace tandem
