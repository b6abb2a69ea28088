#include "ops/host/linear/linear_weight.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/host/linear/linear_kernels.h"

namespace tandem {
namespace {

// oneDNN's blocked formats pad k to whole blocks.
int64_t PaddedDepth(int64_t in_features, DType dtype) {
  const int64_t multiple = dtype == DType::kBF16 ? 32 : 16;
  return (in_features + multiple - 1) / multiple * multiple;
}

}  // namespace

HostLinearWeight::HostLinearWeight(int64_t out_features, int64_t in_features, DType dtype)
    : out_features_(out_features),
      in_features_(in_features),
      dtype_(dtype),
      num_panels_((out_features + kPanelColumns - 1) / kPanelColumns),
      panel_stride_(PaddedDepth(in_features, dtype) * kPanelColumns),
      size_bytes_(static_cast<size_t>(num_panels_ * panel_stride_) * DTypeSize(dtype)),
      bias_(static_cast<size_t>(num_panels_ * kPanelColumns)) {}

Result<std::unique_ptr<LinearWeight>> HostLinearWeight::Create(int64_t out_features, int64_t in_features,
                                                               DType dtype, WeightArena* arena) {
  TANDEM_CHECK(out_features > 0 && in_features > 0, "weight [{}, {}]", out_features, in_features);
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    return MakeError(ErrorCode::kUnsupported, "the host backend multiplies fp32 and bf16 weights, not {}",
                     DTypeName(dtype));
  }
  std::unique_ptr<HostLinearWeight> weight(new HostLinearWeight(out_features, in_features, dtype));
  weight->panels_ = arena->Allocate(weight->size_bytes_);
  if (weight->panels_ == nullptr) {
    return MakeError(ErrorCode::kResourceExhausted, "no memory for a weight of {} bytes [{}, {}]",
                     weight->size_bytes_, out_features, in_features);
  }
  return std::unique_ptr<LinearWeight>(std::move(weight));
}

void HostLinearWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, out_features_);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t panel = (row_begin + i) / kPanelColumns;
    const int64_t column = (row_begin + i) % kPanelColumns;
    if (dtype_ == DType::kF32) {
      const float* from = static_cast<const float*>(rows) + i * in_features_;
      float* to = reinterpret_cast<float*>(panels_.get()) + panel * panel_stride_ + column;
      for (int64_t k = 0; k < in_features_; ++k) to[k * kPanelColumns] = from[k];
    } else {
      const uint16_t* from = static_cast<const uint16_t*>(rows) + i * in_features_;
      uint16_t* to = reinterpret_cast<uint16_t*>(panels_.get()) + panel * panel_stride_ + column * 2;
      int64_t k = 0;
      for (; k + 2 <= in_features_; k += 2) std::memcpy(to + k * kPanelColumns, from + k, 4);
      if (k < in_features_) to[k * kPanelColumns] = from[k];
    }
  }
}

void HostLinearWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "bias [{}, {}) of a weight with {} rows", row_begin, row_begin + num_rows, out_features_);
  std::copy_n(bias, num_rows, bias_.begin() + row_begin);
  has_bias_.store(true, std::memory_order_relaxed);
}

}  // namespace tandem
