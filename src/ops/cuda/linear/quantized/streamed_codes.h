// Products with codes on compute capability 9.0: the streamed product (ops/cuda/linear/streamed), whose
// weight comes as records and becomes the tensor core's first operand in registers.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"

namespace tandem {

constexpr int64_t kMaxStreamedCodeRows = 1024;

// True if LaunchStreamedCodes can do the product: compute capability 9.0, bf16 or fp16, at most
// kMaxStreamedCodeRows rows, out_features a multiple of 8, x and y and their rows aligned to 16 bytes.
bool StreamedCodesSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes,
                           const MatrixView& y);

// y[rows, out] = x[rows, in] weight^T + bias, or silu(gate) * up of it with is_gate_up (y: [rows, out / 2] of
// x's dtype, the weight's rows in GateUpOrder). bias: fp32 [out] or null; y: fp32 or x's dtype, rounded once.
//
// Values are made in x's dtype: a scale, and a minimum less that of the middle code, are rounded to it, and
// so is a value. The same product gives the same bits, and a row's do not depend on what the other rows are,
// but on how many there are. Codes and bias are read before the stream's earlier kernels have ended.
void LaunchStreamedCodes(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                         const MatrixView& y, bool is_gate_up, const QuantizedWorkspace& workspace);

// What a kernel is launched with.
struct StreamedCodes {
  const std::byte* records = nullptr;
  const float* factors = nullptr;
  int64_t panel_bytes = 0;
  int slice_bytes = 0;  // of a panel
  int num_slices = 0;
  int num_panels = 0;
  bool has_minimum = false;
  StreamedArguments product;  // its cut is the launch's
};

// Its kernels for one type and width of codes, in a unit each.
void LaunchStreamedInt4Bf16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes);
void LaunchStreamedInt4Fp16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes);
void LaunchStreamedInt8Bf16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes);
void LaunchStreamedInt8Fp16(CudaStream& stream, int group_size, const MatrixView& x, StreamedCodes codes);

}  // namespace tandem
