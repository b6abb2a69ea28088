// Products of few rows: the weights stream through an SM once, as fast as memory gives them.
#pragma once

#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// Up to here nothing else comes near in a chain of products. (Measured alone, other kernels can look better.)
constexpr int64_t kMaxSkinnyRows = 8;

// True if LaunchSkinnyLinear can do the product: compute capability 8.0, bf16 or fp16, or 7.5 and fp16, at
// most kMaxSkinnyRows rows, in_features a multiple of 8, x and its rows aligned to 16 bytes.
bool SkinnyLinearSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight);

// y[rows, out] = x[rows, in] weight[out, in]^T + bias; weight dense, bias fp32 [out] or null, y fp32 or the
// weight's dtype. A row's bits do not depend on the other rows. Weight and bias are read before the stream's
// earlier kernels have ended.
void LaunchSkinnyLinear(CudaStream& stream, const MatrixView& x, const MatrixView& weight, const float* bias,
                        const MatrixView& y);

}  // namespace tandem
