#include "ops/cuda/linear/fused/fused_gate_up.h"

#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/dtype.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/row_alignment.h"

namespace tandem {

std::string_view FusedGateUpName(FusedGateUp kernel) {
  switch (kernel) {
    case FusedGateUp::kCooperative128x256:
      return "cooperative-128x256";
    case FusedGateUp::kCooperative256x128:
      return "cooperative-256x128";
    case FusedGateUp::kPingpong128x128:
      return "pingpong-128x128";
    default:
      return "none";
  }
}

std::optional<FusedGateUp> FusedGateUpFromName(std::string_view name) {
  if (name == FusedGateUpName(FusedGateUp::kNone)) return FusedGateUp::kNone;
  for (const FusedGateUp kernel : kFusedGateUps) {
    if (name == FusedGateUpName(kernel)) return kernel;
  }
  return std::nullopt;
}

bool HasFusedGateUp() {
#ifdef TANDEM_FUSED_GATE_UP
  return true;
#else
  return false;
#endif
}

bool FusedGateUpSupports(const CudaTarget& target, const MatrixView& x, const MatrixView& weight,
                         bool has_bias, const MatrixView& y) {
  constexpr int kHopper = 90;
  constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max() / 2;
  const bool types =
      (x.dtype == DType::kBF16 || x.dtype == DType::kF16) && weight.dtype == x.dtype && y.dtype == x.dtype;
  return HasFusedGateUp() && target.compute_capability == kHopper && types && !has_bias && x.rows > 0 &&
         x.rows < kMaxSize && weight.rows < kMaxSize && x.cols % 8 == 0 && y.cols % kGateUpBlock == 0 &&
         RowsAligned16(x) && RowsAligned16(weight) && RowsAligned16(y);
}

void LaunchFusedGateUp(CudaStream& stream, FusedGateUp kernel, const MatrixView& x, const MatrixView& weight,
                       const MatrixView& y, int group_columns) {
  TANDEM_CHECK(kernel != FusedGateUp::kNone && group_columns > 0 && x.rows == y.rows &&
                   x.cols == weight.cols && weight.rows == 2 * y.cols && weight.row_stride == weight.cols &&
                   FusedGateUpSupports(stream.target(), x, weight, /*has_bias=*/false, y),
               "fused gate-up product {}: x {} [{}, {}] stride {}, weight [{}, {}], y [{}, {}] stride {}",
               FusedGateUpName(kernel), DTypeName(x.dtype), x.rows, x.cols, x.row_stride, weight.rows,
               weight.cols, y.rows, y.cols, y.row_stride);
#ifdef TANDEM_FUSED_GATE_UP
  (x.dtype == DType::kBF16 ? LaunchFusedGateUpBf16 : LaunchFusedGateUpFp16)(stream, kernel, x, weight, y,
                                                                            group_columns);
#endif
}

}  // namespace tandem
