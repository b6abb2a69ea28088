#include "ops/cuda/linear/quantized/quantized_linear.h"

#include <algorithm>

#include "base/check.h"
#include "base/round_up.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {

namespace {

// Of GPUs before 8.0: without a ring in shared memory.
bool IsDirect(const CudaTarget& target) {
  return target.compute_capability < 80;
}

}  // namespace

bool HasQuantizedProducts(const CudaTarget& target, DType dtype) {
  if (IsDirect(target)) return target.compute_capability >= 75 && dtype == DType::kF16;
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

bool QuantizedLinearSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes) {
  return HasQuantizedProducts(target, x.dtype) && x.cols == codes.layout.in_features && RowsAligned16(x);
}

int NumParts(const UnitsOfProduct& product) {
  // Parts have at least kMinPartSlices; sums of more parts, or of more rows, take longer to add up than parts
  // save. Reckoned, not measured.
  constexpr int kMinPartSlices = 4;
  constexpr int kFewRows = 16;
  constexpr double kCostOfPart = 0.1;
  const bool has_few_rows = product.rows <= kFewRows;
  const int64_t most = std::min<int64_t>(
      {has_few_rows ? 8 : 4, product.num_slices / kMinPartSlices,
       static_cast<int64_t>(kQuantizedPartialsBytes) / (product.unit_bytes * product.units)});
  if (most < 2 || product.units > static_cast<int64_t>(kQuantizedCounters)) return 1;
  // Few rows are limited by memory, which a part of the blocks can fill: all of them work at once. With more
  // rows it counts how full the last wave of blocks is.
  if (has_few_rows) return static_cast<int>(std::clamp<int64_t>(product.at_once / product.units, 1, most));
  int best = 1;
  double best_cost = 0.0;
  for (int parts = 1; parts <= most; ++parts) {
    const int64_t waves = DivideUp(product.units * parts, product.at_once);
    const double cost = static_cast<double>(waves) / parts * (1.0 + kCostOfPart * (parts - 1));
    if (parts > 1 && cost >= best_cost) continue;
    best = parts;
    best_cost = cost;
  }
  return best;
}

namespace {

void Launch(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
            const MatrixView& y, bool is_gate_up, const QuantizedWorkspace& workspace) {
  if (x.rows == 0) return;
  const CodeLayout& layout = codes.layout;
  QuantizedProduct product;
  product.records = codes.records;
  product.factors = codes.factors;
  product.bias = bias;
  product.x = x.data;
  product.y = y.data;
  product.x_stride = x.row_stride;
  product.y_stride = y.row_stride;
  product.out_features = static_cast<int>(codes.out_features);
  product.in_features = layout.in_features;
  product.num_slices = layout.num_slices();
  product.rows = static_cast<int>(x.rows);
  product.y_is_f32 = y.dtype == DType::kF32;
  product.is_gate_up = is_gate_up;
  product.workspace = workspace;
  if (IsDirect(stream.target())) {
    return (layout.bits == 4 ? LaunchQuantizedInt4Direct : LaunchQuantizedInt8Direct)(stream, layout,
                                                                                      product);
  }
  const bool is_bf16 = x.dtype == DType::kBF16;
  if (layout.bits == 4) {
    return (is_bf16 ? LaunchQuantizedInt4Bf16 : LaunchQuantizedInt4Fp16)(stream, layout, product);
  }
  (is_bf16 ? LaunchQuantizedInt8Bf16 : LaunchQuantizedInt8Fp16)(stream, layout, product);
}

}  // namespace

void LaunchQuantizedLinear(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                           const MatrixView& y, const QuantizedWorkspace& workspace) {
  TANDEM_CHECK(QuantizedLinearSupports(stream.target(), x, codes),
               "quantized linear: x {} [{}, {}] stride {}, codes [{}, {}]", DTypeName(x.dtype), x.rows,
               x.cols, x.row_stride, codes.out_features, codes.layout.in_features);
  TANDEM_CHECK(
      y.rows == x.rows && y.cols == codes.out_features && (y.dtype == DType::kF32 || y.dtype == x.dtype),
      "quantized linear: x {} [{}, {}], y {} [{}, {}]", DTypeName(x.dtype), x.rows, x.cols,
      DTypeName(y.dtype), y.rows, y.cols);
  Launch(stream, x, codes, bias, y, /*is_gate_up=*/false, workspace);
}

bool QuantizedGateUpSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes) {
  return QuantizedLinearSupports(target, x, codes) && x.rows <= kMaxSkinnyCodeRows &&
         codes.out_features % (2 * kGateUpBlock) == 0 &&
         (IsDirect(target) || target.max_shared_bytes_per_block >= kSkinnySharedBytes);
}

void LaunchQuantizedGateUp(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                           const MatrixView& y, const QuantizedWorkspace& workspace) {
  TANDEM_CHECK(QuantizedGateUpSupports(stream.target(), x, codes) && y.rows == x.rows &&
                   2 * y.cols == codes.out_features && y.dtype == x.dtype,
               "quantized gate-up: x {} [{}, {}] stride {}, codes [{}, {}], y {} [{}, {}]",
               DTypeName(x.dtype), x.rows, x.cols, x.row_stride, codes.out_features, codes.layout.in_features,
               DTypeName(y.dtype), y.rows, y.cols);
  Launch(stream, x, codes, bias, y, /*is_gate_up=*/true, workspace);
}

}  // namespace tandem
