// Products of some ten to some hundred rows on compute capability 9.0: all SMs stream equal parts of the
// weights at all times, whatever the shape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// Kernels that differ in speed only, named after the most rows of x that they take. Pairs: two thread blocks
// on neighbouring SMs compute different outputs in step, and each loads half of the x that both need.
enum class StreamedLinear : uint8_t {
  kNone,
  k64,
  k64Pairs,
  k128,
  k128Pairs,
  k192Pairs,
  k256Pairs,
};
inline constexpr std::array kStreamedLinears = {StreamedLinear::k64,       StreamedLinear::k64Pairs,
                                                StreamedLinear::k128,      StreamedLinear::k128Pairs,
                                                StreamedLinear::k192Pairs, StreamedLinear::k256Pairs};

// As it stands in files and tables.
std::string_view StreamedLinearName(StreamedLinear kernel);
std::optional<StreamedLinear> StreamedLinearFromName(std::string_view name);

// 0 for kNone.
int64_t MaxRowsOf(StreamedLinear kernel);
inline constexpr int64_t kMaxStreamedRows = 256;

// Whether the build has the kernels at all (TANDEM_STREAMED_PRODUCTS).
bool HasStreamedLinear();
// True if LaunchStreamedLinear can do the product: compute capability 9.0, bf16 or fp16, at most
// MaxRowsOf(kernel) rows, in_features and out_features multiples of 8, x and y and their rows aligned to
// 16 bytes.
bool StreamedLinearSupports(const CudaTarget& target, StreamedLinear kernel, const MatrixView& x,
                            const MatrixView& weight, const MatrixView& y);

// What thread blocks tell each other. GPU memory of one stream. Nothing in it outlives a product but that
// arrivals are 0.
struct StreamedWorkspace {
  void* partial_sums = nullptr;  // StreamedPartialSumBytes, aligned to 16 bytes
  uint32_t* arrivals = nullptr;  // kMaxStreamedArrivals, 0 before the first product
};
inline constexpr int kMaxStreamedArrivals = 1024;
// kernel: not kNone.
size_t StreamedPartialSumBytes(const CudaTarget& target, StreamedLinear kernel);

// y[rows, out] = x[rows, in] weight[out, in]^T + bias; weight dense, bias fp32 [out] or null, y fp32 or the
// weight's dtype, rounded once. kernel: not kNone. Takes at most as many thread blocks as the stream's slice
// has SMs. The same product gives the same bits, and a row's do not depend on what the other rows are. Weight
// and bias are read before the stream's earlier kernels have ended.
void LaunchStreamedLinear(CudaStream& stream, StreamedLinear kernel, const MatrixView& x,
                          const MatrixView& weight, const float* bias, const MatrixView& y,
                          const StreamedWorkspace& workspace);

// Ops::GateUp with the same kernels: y[rows, mlp] = silu(x Wg^T + bg) * (x Wu^T + bu), rounded once. weight:
// [2 mlp, in] and bias in GateUpOrder. Supports: what LaunchStreamedLinear needs, but mlp a multiple of 8, y
// of the weight's dtype.
bool StreamedGateUpSupports(const CudaTarget& target, StreamedLinear kernel, const MatrixView& x,
                            const MatrixView& weight, const MatrixView& y);
void LaunchStreamedGateUp(CudaStream& stream, StreamedLinear kernel, const MatrixView& x,
                          const MatrixView& weight, const float* bias, const MatrixView& y,
                          const StreamedWorkspace& workspace);

}  // namespace tandem
