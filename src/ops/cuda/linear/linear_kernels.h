// Small kernels around matrix products.
#pragma once

#include <cstddef>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// y[r, c] += bias[c]; bias fp32. y: fp32, bf16 or fp16.
void LaunchAddBias(CudaStream& stream, const MatrixView& y, const float* bias);

// Reads size_bytes (a multiple of 16, aligned to 16), so that nothing else of the L2's size is left in the
// L2. sink: 4 bytes that may be written.
void LaunchReadAll(CudaStream& stream, const void* data, size_t size_bytes, void* sink);

}  // namespace tandem
