#include "ops/cuda/linear/quantized/streamed_codes.h"

#include "base/check.h"
#include "base/round_up.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {

bool StreamedCodesSupports(const CudaTarget& target, const MatrixView& x, const CodesView& codes,
                           const MatrixView& y) {
  constexpr int kHopper = 90;
  constexpr int kMostGroups = 3;
  constexpr int64_t kMostRowBlocks = kMaxStreamedCodeRows / 128;
  return HasStreamedLinear() && target.compute_capability == kHopper && target.num_sms >= 2 &&
         target.num_sms * kMostGroups <= kMaxStreamedArrivals &&
         (x.dtype == DType::kBF16 || x.dtype == DType::kF16) && x.cols == codes.layout.in_features &&
         x.rows > 0 && x.rows <= kMaxStreamedCodeRows && y.cols % 8 == 0 && RowsAligned16(x) &&
         RowsAligned16(y) &&
         WorkCut::Fits(DivideUp(codes.out_features, int64_t{kCodePanelOutputs}) * kMostRowBlocks,
                       codes.layout.num_slices(), target.num_sms);
}

void LaunchStreamedCodes(CudaStream& stream, const MatrixView& x, const CodesView& codes,
                         [[maybe_unused]] const float* bias, const MatrixView& y, bool is_gate_up,
                         [[maybe_unused]] const QuantizedWorkspace& workspace) {
  TANDEM_CHECK(StreamedCodesSupports(stream.target(), x, codes, y) && y.rows == x.rows &&
                   codes.out_features == (is_gate_up ? 2 : 1) * y.cols &&
                   (y.dtype == x.dtype || (y.dtype == DType::kF32 && !is_gate_up)),
               "streamed codes: x {} [{}, {}] stride {}, codes [{}, {}], y {} [{}, {}] stride {}",
               DTypeName(x.dtype), x.rows, x.cols, x.row_stride, codes.out_features, codes.layout.in_features,
               DTypeName(y.dtype), y.rows, y.cols, y.row_stride);
#ifdef TANDEM_STREAMED_PRODUCTS
  const CodeLayout& layout = codes.layout;
  StreamedCodes streamed;
  streamed.records = codes.records;
  streamed.factors = codes.factors;
  streamed.slice_bytes = kPanelRecords * layout.record_bytes();
  streamed.panel_bytes = int64_t{layout.num_slices()} * streamed.slice_bytes;
  streamed.num_slices = layout.num_slices();
  streamed.num_panels = static_cast<int>(DivideUp(codes.out_features, int64_t{kCodePanelOutputs}));
  streamed.has_minimum = layout.has_minimum;
  StreamedArguments& product = streamed.product;
  product.bias = bias;
  product.y = y.data;
  product.y_stride = y.row_stride;
  product.rows = static_cast<int>(x.rows);
  product.out_features = static_cast<int>(codes.out_features);
  product.y_is_f32 = y.dtype == DType::kF32;
  product.is_gate_up = is_gate_up;
  product.workspace = {.partial_sums = workspace.partials, .arrivals = workspace.counters};
  const bool is_bf16 = x.dtype == DType::kBF16;
  if (layout.bits == 4) {
    return (is_bf16 ? LaunchStreamedInt4Bf16 : LaunchStreamedInt4Fp16)(stream, layout.group_size, x,
                                                                       streamed);
  }
  (is_bf16 ? LaunchStreamedInt8Bf16 : LaunchStreamedInt8Fp16)(stream, layout.group_size, x, streamed);
#endif
}

}  // namespace tandem
