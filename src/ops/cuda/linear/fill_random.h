// Values of weights without a checkpoint, made in GPU memory.
#pragma once

#include "base/matrix_view.h"
#include "base/random_values.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/gate_up_order.h"

namespace tandem {

// matrix: dense; fp32, bf16 or fp16. order: that of the rows, which are then counted as logical ones; null:
// as they lie.
void LaunchFillRandom(CudaStream& stream, const MatrixView& matrix, const RandomValues& values,
                      const GateUpOrder* order = nullptr);

}  // namespace tandem
