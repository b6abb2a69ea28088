// The GPU's clock, read by a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tandem {

// *time_ns = the GPU's global timer when the stream gets here. time_ns: pinned memory.
void LaunchStamp(cudaStream_t stream, uint64_t* time_ns);

// cudaSuccess if this build has code for the current GPU.
cudaError_t FindDeviceCode();

}  // namespace tandem
