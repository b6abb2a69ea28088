// The values that codes stand for: scale * code + minimum in fp32, times the output's factor, rounded once.
#pragma once

#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/quantized/code_layout.h"

namespace tandem {

// to[i, :] = output first_output + i. to: [any, in_features] dense, bf16 or fp16, 16-byte aligned.
// first_output: a multiple of kCodePanelOutputs.
void LaunchDequantize(CudaStream& stream, const CodesView& codes, int64_t first_output, const MatrixView& to);

// to[i, :] = output ids[i] - first_id; zeros where there is none of that number. ids: GPU memory; to: fp32.
void LaunchGatherDequantized(CudaStream& stream, const CodesView& codes, const int32_t* ids, int32_t first_id,
                             const MatrixView& to);

}  // namespace tandem
