// Products with codes: the weight is read once as it is stored, and becomes numbers in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/quantized/code_layout.h"

namespace tandem {

// What the kernels share with nobody else on a stream.
struct QuantizedWorkspace {
  float* partials = nullptr;  // kQuantizedPartialsBytes, content undefined
  // kQuantizedCounters, all 0 between the kernels of a stream.
  uint32_t* counters = nullptr;
};
constexpr size_t kQuantizedPartialsBytes = size_t{64} << 20;
constexpr size_t kQuantizedCounters = 16 << 10;

// Up to here products are not cut into parts that wait for each other.
constexpr int64_t kMaxSkinnyCodeRows = 8;
// Of such a product's block (skinny_tile.cuh): rings and sums of 8 warps.
constexpr int kSkinnyWarps = 8;
constexpr int kSkinnyRingBytes = 12 << 10;
constexpr int kSkinnySharedBytes = kSkinnyWarps * (kSkinnyRingBytes + 8 * 20 * 4);

// Whether there are products with codes at a dtype: bf16 and fp16 from compute capability 8.0 on, fp16
// on 7.5.
bool HasQuantizedProducts(const CudaTarget& target, DType dtype);

// True if LaunchQuantizedLinear can do the product: HasQuantizedProducts, x and its rows aligned to 16 bytes.
bool QuantizedLinearSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes);

// y[rows, out] = x[rows, in] weight^T + bias. bias: fp32 [out] or null; y: fp32 or x's dtype. Any number of
// rows; up to 128 the weight is read once, on 7.5 up to 64.
//
// Codes are multiplied as integers, which is exact; the fp32 sums of a group are multiplied by its scale, and
// those of x by its minimum. So the weights are not rounded at all. Of more than kMaxSkinnyCodeRows rows,
// codes less the one that stands for zero are multiplied, but in bf16, codes of 4 bits with a minimum are
// multiplied as code + 128, and 128 scales are taken from the minimum: fewer instructions, and an error of
// 2^-24 of 128 scales. Of fewer rows, codes are multiplied as they are, and scales times what stands for zero
// are taken off with the sums of x; of each product the tensor core cuts off what is less than 2^-17 scales
// times the largest x of the 16 that it adds up together. x of bf16 is multiplied by 2^64 there: it has to be
// less than 2^63 in magnitude. A row's bits do not depend on the other rows, but on how many there are. Codes
// and bias are read before the stream's earlier kernels have ended.
void LaunchQuantizedLinear(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                           const MatrixView& y, const QuantizedWorkspace& workspace);

// y[rows, out / 2] = silu(gate) * up of the product with a weight whose rows are in GateUpOrder, in one
// kernel. y: x's dtype. Supports: what LaunchQuantizedLinear needs, at most kMaxSkinnyCodeRows, out / 2 a
// multiple of 8, and 101 KiB of shared memory a block (none of that on 7.5).
bool QuantizedGateUpSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes);
void LaunchQuantizedGateUp(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                           const MatrixView& y, const QuantizedWorkspace& workspace);

// Blocks of a kernel, each for some outputs and rows and all slices.
struct UnitsOfProduct {
  int64_t units = 0;
  int64_t at_once = 0;  // that work at the same time
  int num_slices = 0;
  int rows = 0;            // of a block
  int64_t unit_bytes = 0;  // of a block's sums
};
// Parts of the slices to make of every unit, 1 to 8.
int NumParts(const UnitsOfProduct& product);

// What a kernel is launched with.
struct QuantizedProduct {
  const void* records = nullptr;
  const float* factors = nullptr;
  const float* bias = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int out_features = 0;
  int in_features = 0;
  int num_slices = 0;
  int rows = 0;
  bool y_is_f32 = false;
  bool is_gate_up = false;  // at most kMaxSkinnyCodeRows
  int num_splits = 1;       // of the slices, filled in by the launch
  QuantizedWorkspace workspace;
};

// Its kernels for one type and width of codes, in a unit each.
void LaunchQuantizedInt4Bf16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);
void LaunchQuantizedInt4Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);
void LaunchQuantizedInt8Bf16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);
void LaunchQuantizedInt8Fp16(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);
// Those of compute capability 7.5, fp16.
void LaunchQuantizedInt4Direct(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);
void LaunchQuantizedInt8Direct(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product);

}  // namespace tandem
