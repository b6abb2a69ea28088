// Products of up to 128 rows on Hopper: the weights stream through shared memory once, the copy engine brings
// them, warp groups multiply them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

constexpr int64_t kMaxStreamRows = 128;
// Ways to cut the work; which is fastest depends on shape, rows and GPU.
constexpr int kNumStreamVariants = 4;
// Changes whenever the variants change their meaning: measured choices are kept on disk.
constexpr int kStreamVersion = 1;

// What a stream's products need between them. GPU memory.
struct StreamLinearWorkspace {
  void* partials = nullptr;  // kStreamPartialBytes, aligned to 256; its content does not matter
  int* counters = nullptr;   // kStreamCounterBytes; zeros before the first product, and again after each
};
constexpr size_t kStreamPartialBytes = size_t{64} << 20;
constexpr size_t kStreamCounterBytes = 8192;

// True if LaunchStreamLinear can do the product: compute capability 9.0, bf16 or fp16, at most kMaxStreamRows
// rows, in_features a multiple of 8, x and its rows aligned to 16 bytes.
bool StreamLinearSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight);

// y[rows, out] = x[rows, in] weight[out, in]^T + bias; weight dense, bias fp32 [out] or null, y fp32 or the
// weight's dtype. The same input gives the same bits. Weight and bias are read before the stream's earlier
// kernels have ended.
void LaunchStreamLinear(CudaStream& stream, const MatrixView& x, const MatrixView& weight, const float* bias,
                        const MatrixView& y, const StreamLinearWorkspace& workspace, int variant);

}  // namespace tandem
