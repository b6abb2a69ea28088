#include "ops/cuda/linear/quantized/quantized_linear.h"

#include "base/check.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {

bool QuantizedLinearSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes) {
  constexpr int kFirstWithKernels = 80;
  return target.compute_capability >= kFirstWithKernels &&
         (x.dtype == DType::kBF16 || x.dtype == DType::kF16) && x.cols == codes.layout.in_features &&
         RowsAligned16(x);
}

void LaunchQuantizedLinear(CudaStream& stream, const MatrixView& x, const CodesView& codes, const float* bias,
                           const MatrixView& y, const QuantizedWorkspace& workspace) {
  TANDEM_CHECK(QuantizedLinearSupports(stream.target(), x, codes),
               "quantized linear: x {} [{}, {}] stride {}, codes [{}, {}]", DTypeName(x.dtype), x.rows,
               x.cols, x.row_stride, codes.out_features, codes.layout.in_features);
  TANDEM_CHECK(y.rows == x.rows && y.cols == codes.out_features &&
                   (y.dtype == DType::kF32 || y.dtype == x.dtype),
               "quantized linear: x {} [{}, {}], y {} [{}, {}]", DTypeName(x.dtype), x.rows, x.cols,
               DTypeName(y.dtype), y.rows, y.cols);
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
  product.workspace = workspace;
  const bool is_bf16 = x.dtype == DType::kBF16;
  if (layout.bits == 4) {
    return (is_bf16 ? LaunchQuantizedInt4Bf16 : LaunchQuantizedInt4Fp16)(stream, layout, product);
  }
  (is_bf16 ? LaunchQuantizedInt8Bf16 : LaunchQuantizedInt8Fp16)(stream, layout, product);
}

}  // namespace tandem
