// The cuda backend's device: one GPU, or a slice of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/cuda_target.h"
#include "device/device.h"

namespace tandem {

// The GPUs are those that the driver shows, the first ones first; CUDA_VISIBLE_DEVICES chooses.
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

// For shards: a GPU each. Errors as above; kUnavailable with param tensor-parallel-size where there are fewer
// GPUs.
Result<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaDeviceOptions& options,
                                                               int num_gpus);
// For shards: slices of the first GPU, of as many SMs each as it can be cut into, at most sm_limit. They
// share its memory and what the options let them use of it. Errors as above; kInvalidArgument with param
// gpu-sm-slices where it cannot be cut into so many.
Result<std::vector<std::unique_ptr<Device>>> CreateCudaSlices(const CudaDeviceOptions& options,
                                                              int num_slices);

// For a shard in a process of its own, beside others of its host.
struct CudaShardPlace {
  int index = 0;  // among the shards of this host
  // A GPU each: the one of this index, going round where this process is shown fewer, as launchers do that
  // show each its own. Else the first GPU is cut into so many slices, of which this is one; processes take
  // turns on it.
  int num_slices = 0;
};
// Errors as above.
Result<std::unique_ptr<Device>> CreateCudaShard(const CudaDeviceOptions& options,
                                                const CudaShardPlace& place);

// The number of a device's GPU, as the driver counts. CHECKs that device is of the cuda backend.
int CudaGpuOf(const Device& device);

// 16 bytes that are the same in all processes, whatever the GPU's number is there.
std::string CudaGpuUuid(const Device& device);

// What the calling thread does with the runtime is of the device's GPU from now on, until it enqueues on a
// stream of another one. For what has no stream: handles of libraries, attributes of kernels.
void UseCudaGpu(const Device& device);

// CHECKs that device is of the cuda backend.
const CudaTarget& CudaTargetOf(const Device& device);

// Identifies the GPU, its slice and the libraries, for what is kept on disk: "NVIDIA H200-sm90-132".
std::string CudaDeviceKey(const Device& device);

}  // namespace tandem
