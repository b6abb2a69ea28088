// Values of weights without a checkpoint, made in GPU memory.
#pragma once

#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// matrix (dense; fp32, bf16 or fp16) = HashedUniform(seed, row * cols + col, bound), rounded.
void LaunchFillRandom(CudaStream& stream, const MatrixView& matrix, uint64_t seed, float bound);

}  // namespace tandem
