#include "ops/cuda/linear/fp8/fp8_linear.h"

#include "base/check.h"
#include "base/round_up.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {

bool Fp8LinearSupports(const CudaTarget& target, const MatrixView& x, const Fp8View& weight) {
  constexpr int kFirstWithKernels = 80;
  return target.compute_capability >= kFirstWithKernels &&
         (x.dtype == DType::kBF16 || x.dtype == DType::kF16) && x.cols == weight.in_features &&
         RowsAligned16(x);
}

namespace {

void LaunchFp8Product(CudaStream& stream, const MatrixView& x, const Fp8View& weight, const float* bias,
                      const MatrixView& y, bool is_gate_up, const QuantizedWorkspace& workspace) {
  if (x.rows == 0) return;
  Fp8Product product;
  product.records = weight.codes;
  product.factors = weight.scales;
  product.bias = bias;
  product.x = x.data;
  product.y = y.data;
  product.x_stride = x.row_stride;
  product.y_stride = y.row_stride;
  product.out_features = static_cast<int>(weight.out_features);
  product.in_features = static_cast<int>(weight.in_features);
  product.num_slices = static_cast<int>(DivideUp(weight.in_features, int64_t{kFp8Slice}));
  product.rows = static_cast<int>(x.rows);
  product.y_is_f32 = y.dtype == DType::kF32;
  product.is_gate_up = is_gate_up;
  product.workspace = workspace;
  product.has_row_scales = weight.has_row_scales();
  product.num_groups = static_cast<int>(weight.num_groups());
  product.slices_per_group = static_cast<int>(weight.group_size / kFp8Slice);
  (x.dtype == DType::kBF16 ? LaunchFp8Bf16 : LaunchFp8Fp16)(stream, product);
}

}  // namespace

void LaunchFp8Linear(CudaStream& stream, const MatrixView& x, const Fp8View& weight, const float* bias,
                     const MatrixView& y, const QuantizedWorkspace& workspace) {
  TANDEM_CHECK(Fp8LinearSupports(stream.target(), x, weight),
               "fp8 linear: x {} [{}, {}] stride {}, weight [{}, {}]", DTypeName(x.dtype), x.rows, x.cols,
               x.row_stride, weight.out_features, weight.in_features);
  TANDEM_CHECK(
      y.rows == x.rows && y.cols == weight.out_features && (y.dtype == DType::kF32 || y.dtype == x.dtype),
      "fp8 linear: x {} [{}, {}], y {} [{}, {}]", DTypeName(x.dtype), x.rows, x.cols, DTypeName(y.dtype),
      y.rows, y.cols);
  LaunchFp8Product(stream, x, weight, bias, y, /*is_gate_up=*/false, workspace);
}

bool Fp8GateUpSupports(const CudaTarget& target, const MatrixView& x, const Fp8View& weight) {
  return Fp8LinearSupports(target, x, weight) && x.rows <= kMaxSkinnyCodeRows &&
         weight.out_features % (2 * kGateUpBlock) == 0 &&
         target.max_shared_bytes_per_block >= kSkinnySharedBytes;
}

void LaunchFp8GateUp(CudaStream& stream, const MatrixView& x, const Fp8View& weight, const float* bias,
                     const MatrixView& y) {
  TANDEM_CHECK(Fp8GateUpSupports(stream.target(), x, weight) && y.rows == x.rows &&
                   2 * y.cols == weight.out_features && y.dtype == x.dtype,
               "fp8 gate-up: x {} [{}, {}] stride {}, weight [{}, {}], y {} [{}, {}]", DTypeName(x.dtype),
               x.rows, x.cols, x.row_stride, weight.out_features, weight.in_features, DTypeName(y.dtype),
               y.rows, y.cols);
  LaunchFp8Product(stream, x, weight, bias, y, /*is_gate_up=*/true, {});
}

}  // namespace tandem
