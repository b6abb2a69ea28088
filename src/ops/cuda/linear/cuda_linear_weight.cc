#include "ops/cuda/linear/cuda_linear_weight.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/linear/fill_random.h"

namespace tandem {
namespace {

constexpr size_t kWeightAlignment = 256;

size_t Aligned(size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

}  // namespace

CudaLinearWeight::CudaLinearWeight(Device* device, std::shared_ptr<WeightUpload> upload, int64_t out_features,
                                   int64_t in_features, DType dtype, bool is_gate_up)
    : device_(device),
      upload_(std::move(upload)),
      out_features_(out_features),
      in_features_(in_features),
      dtype_(dtype) {
  if (is_gate_up) order_.emplace(out_features / 2);
}

CudaLinearWeight::CudaLinearWeight(const MatrixView& values, const float* bias, const void* rounded_bias,
                                   bool is_gate_up)
    : CudaLinearWeight(nullptr, nullptr, values.rows, values.cols, values.dtype, is_gate_up) {
  values_ = values.data;
  // Nothing is written through these: a weight without an upload is not loaded.
  bias_ = reinterpret_cast<std::byte*>(const_cast<float*>(bias));
  rounded_bias_ = static_cast<std::byte*>(const_cast<void*>(rounded_bias));
  has_bias_ = bias != nullptr;
}

CudaLinearWeight::CudaLinearWeight(const MatrixView& values, DType dtype, const float* scales,
                                   const float* bias, const void* rounded_bias, bool is_gate_up)
    : CudaLinearWeight(MatrixView::Dense(values.data, dtype, values.rows, values.cols), bias, rounded_bias,
                       is_gate_up) {
  TANDEM_CHECK(values.dtype == DType::kF8E4M3 && scales != nullptr, "values of {} with scales",
               DTypeName(values.dtype));
  scales_ = scales;
}

Result<std::unique_ptr<LinearWeight>> CudaLinearWeight::Create(Device* device,
                                                               std::shared_ptr<WeightUpload> upload,
                                                               int64_t out_features, int64_t in_features,
                                                               DType dtype, bool is_gate_up) {
  TANDEM_CHECK(out_features > 0 && in_features > 0 && (!is_gate_up || out_features % 2 == 0),
               "weight [{}, {}], gate-up {}", out_features, in_features, is_gate_up);
  constexpr int kFirstWithBF16 = 80;
  const int capability = CudaTargetOf(*device).compute_capability;
  if (!IsFloatType(dtype) || (dtype == DType::kBF16 && capability < kFirstWithBF16)) {
    return MakeError(ErrorCode::kUnsupported, "a GPU of compute capability {}.{} multiplies no {} weights",
                     capability / 10, capability % 10, DTypeName(dtype));
  }
  std::unique_ptr<CudaLinearWeight> weight(
      new CudaLinearWeight(device, std::move(upload), out_features, in_features, dtype, is_gate_up));
  const auto outputs = static_cast<size_t>(out_features);
  const size_t bias_offset = Aligned(outputs * static_cast<size_t>(in_features) * DTypeSize(dtype));
  const size_t rounded_offset = bias_offset + (dtype == DType::kF32 ? 0 : Aligned(outputs * sizeof(float)));
  TANDEM_ASSIGN_OR_RETURN(weight->memory_,
                          device->Allocate(rounded_offset + outputs * DTypeSize(dtype), MemoryKind::kDevice,
                                           fmt::format("a weight [{}, {}]", out_features, in_features)));
  weight->values_ = weight->memory_.data();
  weight->bias_ = weight->memory_.as<std::byte>() + bias_offset;
  weight->rounded_bias_ = weight->memory_.as<std::byte>() + rounded_offset;
  return std::unique_ptr<LinearWeight>(std::move(weight));
}

const void* CudaLinearWeight::bias(DType dtype) const {
  TANDEM_CHECK(dtype == DType::kF32 || dtype == dtype_, "bias in {} of a {} weight", DTypeName(dtype),
               DTypeName(dtype_));
  return dtype == DType::kF32 ? bias_ : rounded_bias_;
}

void CudaLinearWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, out_features_);
  Upload(values_, static_cast<size_t>(in_features_) * DTypeSize(dtype_), row_begin, num_rows, rows);
}

void CudaLinearWeight::Upload(void* all, size_t value_bytes, int64_t row_begin, int64_t num_rows,
                              const void* values) {
  upload_->CopyRows({.all = all,
                     .value_bytes = value_bytes,
                     .out_features = out_features_,
                     .order = order_ ? &*order_ : nullptr},
                    row_begin, num_rows, values);
}

void CudaLinearWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "bias [{}, {}) of a weight with {} rows", row_begin, row_begin + num_rows, out_features_);
  const auto count = static_cast<size_t>(num_rows);
  Upload(bias_, sizeof(float), row_begin, num_rows, bias);
  if (dtype_ != DType::kF32) {
    std::vector<uint16_t> rounded(count);
    for (size_t i = 0; i < count; ++i) {
      rounded[i] = dtype_ == DType::kBF16 ? F32ToBF16(bias[i]) : F32ToF16(bias[i]);
    }
    Upload(rounded_bias_, sizeof(uint16_t), row_begin, num_rows, rounded.data());
  }
  has_bias_.store(true, std::memory_order_relaxed);
}

void CudaLinearWeight::FillRandom(const RandomValues& values) {
  const std::unique_ptr<Stream> stream = device_->CreateStream(StreamKind::kCompute, "random weights");
  LaunchFillRandom(AsCudaStream(*stream), view(), values, order_ ? &*order_ : nullptr);
  stream->Synchronize();
}

}  // namespace tandem
