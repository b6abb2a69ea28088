// The GPU's clock, read and waited for by a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tandem {

// *time_ns = the GPU's global timer when the stream gets here. time_ns: pinned memory.
void LaunchStamp(cudaStream_t stream, uint64_t* time_ns);

// The stream goes on so much later.
void LaunchDelay(cudaStream_t stream, uint64_t time_ns);

// cudaSuccess if this build has code for the current GPU. *architecture: what the code is written for, 90 for
// 9.0, which is less than the GPU's where the driver has compiled PTX of an earlier one.
cudaError_t FindDeviceCode(int* architecture);

}  // namespace tandem
