// From numbers to FP8 (E4M3) and back, row by row.
#pragma once

#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/fp8/fp8_view.h"

namespace tandem {

// Activations: codes[i, :] * scales[i] is x[i, :] to the nearest E4M3, the largest magnitude of a row being
// the largest code. A row does not depend on the others. x: bf16 or fp16, rows aligned to 16 bytes, at most
// kMaxFp8RowWidth columns, a multiple of 16; codes: dense; scales: [rows].
constexpr int64_t kMaxFp8RowWidth = 64 << 10;
void LaunchQuantizeToFp8(CudaStream& stream, const MatrixView& x, uint8_t* codes, float* scales);

// y[i, j] = y[i, j] * factor * row_scales[i] * column_scales[j] + bias[j]. bias: null for none. fp32 in
// between, rounded once. y: a float type.
void LaunchScaleProduct(CudaStream& stream, const MatrixView& y, float factor, const float* row_scales,
                        const float* column_scales, const float* bias);

// to[i, :] = output first_output + i, scale * value rounded once. to: [any, in_features] dense, bf16 or fp16,
// 16-byte aligned.
void LaunchDequantizeFp8(CudaStream& stream, const Fp8View& weight, int64_t first_output,
                         const MatrixView& to);

// to[i, :] = output ids[i] - first_id; zeros where there is none of that number. ids: GPU memory; to: fp32.
void LaunchGatherFp8(CudaStream& stream, const Fp8View& weight, const int32_t* ids, int32_t first_id,
                     const MatrixView& to);

}  // namespace tandem
