// Products with weights of FP8 whose activations stay as they are: the weight is read once as it is stored,
// and becomes numbers in registers.
#pragma once

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/fp8/fp8_view.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"

namespace tandem {

// True if LaunchFp8Linear can do the product: compute capability 8.0, bf16 or fp16, x and its rows aligned to
// 16 bytes.
bool Fp8LinearSupports(const CudaTarget& target, const MatrixView& x, const Fp8View& weight);

// y[rows, out] = x[rows, in] weight^T + bias. bias: fp32 [out] or null; y: fp32 or x's dtype. Any number of
// rows; up to 128 the weight is read once.
//
// Codes are multiplied as they are, which is exact, and fp32 sums by the scales: the weights are not rounded.
// Of up to kMaxSkinnyCodeRows rows, x of bf16 becomes fp16 times a power of two: what is less than 2^-31 of
// the largest magnitude of its part of a row moves by at most 2^-39 of that magnitude. A row's bits do not
// depend on the other rows, but on how many there are. Weight and bias are read before the stream's earlier
// kernels have ended.
void LaunchFp8Linear(CudaStream& stream, const MatrixView& x, const Fp8View& weight, const float* bias,
                     const MatrixView& y, const QuantizedWorkspace& workspace);

// y[rows, out / 2] = silu(gate) * up of the product with a weight whose rows are in GateUpOrder, in one
// kernel. y: x's dtype. Supports: what LaunchFp8Linear needs, at most kMaxSkinnyCodeRows, out / 2 a multiple
// of 8, and 101 KiB of shared memory a block.
bool Fp8GateUpSupports(const CudaTarget& target, const MatrixView& x, const Fp8View& weight);
void LaunchFp8GateUp(CudaStream& stream, const MatrixView& x, const Fp8View& weight, const float* bias,
                     const MatrixView& y);

// What a kernel is launched with: records are the codes, factors the scales.
struct Fp8Product : QuantizedProduct {
  bool has_row_scales = false;
  int num_groups = 0;
  int slices_per_group = 0;
};

// Its kernels for one type, in a unit each.
void LaunchFp8Bf16(CudaStream& stream, const Fp8Product& product);
void LaunchFp8Fp16(CudaStream& stream, const Fp8Product& product);

}  // namespace tandem
