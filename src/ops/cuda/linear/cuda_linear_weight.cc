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
                                   int64_t in_features, DType dtype)
    : device_(device),
      upload_(std::move(upload)),
      out_features_(out_features),
      in_features_(in_features),
      dtype_(dtype) {
  const auto outputs = static_cast<size_t>(out_features);
  bias_f32_offset_ = Aligned(outputs * static_cast<size_t>(in_features) * DTypeSize(dtype));
  bias_rounded_offset_ = bias_f32_offset_ + (dtype == DType::kF32 ? 0 : Aligned(outputs * sizeof(float)));
}

Result<std::unique_ptr<LinearWeight>> CudaLinearWeight::Create(Device* device,
                                                               std::shared_ptr<WeightUpload> upload,
                                                               int64_t out_features, int64_t in_features,
                                                               DType dtype) {
  TANDEM_CHECK(out_features > 0 && in_features > 0, "weight [{}, {}]", out_features, in_features);
  constexpr int kFirstWithBF16 = 80;
  const int capability = CudaTargetOf(*device).compute_capability;
  if (!IsFloatType(dtype) || (dtype == DType::kBF16 && capability < kFirstWithBF16)) {
    return MakeError(ErrorCode::kUnsupported, "a GPU of compute capability {}.{} multiplies no {} weights",
                     capability / 10, capability % 10, DTypeName(dtype));
  }
  std::unique_ptr<CudaLinearWeight> weight(
      new CudaLinearWeight(device, std::move(upload), out_features, in_features, dtype));
  TANDEM_ASSIGN_OR_RETURN(
      weight->memory_,
      device->Allocate(weight->bias_rounded_offset_ + static_cast<size_t>(out_features) * DTypeSize(dtype),
                       MemoryKind::kDevice, fmt::format("a weight [{}, {}]", out_features, in_features)));
  return std::unique_ptr<LinearWeight>(std::move(weight));
}

const void* CudaLinearWeight::bias(DType dtype) const {
  TANDEM_CHECK(dtype == DType::kF32 || dtype == dtype_, "bias in {} of a {} weight", DTypeName(dtype),
               DTypeName(dtype_));
  return memory_.as<std::byte>() + (dtype == DType::kF32 ? bias_f32_offset_ : bias_rounded_offset_);
}

void CudaLinearWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, out_features_);
  const size_t row_bytes = static_cast<size_t>(in_features_) * DTypeSize(dtype_);
  upload_->Copy(memory_.as<std::byte>() + static_cast<size_t>(row_begin) * row_bytes, rows,
                static_cast<size_t>(num_rows) * row_bytes);
}

void CudaLinearWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= out_features_,
               "bias [{}, {}) of a weight with {} rows", row_begin, row_begin + num_rows, out_features_);
  const auto count = static_cast<size_t>(num_rows);
  const auto begin = static_cast<size_t>(row_begin);
  upload_->Copy(memory_.as<std::byte>() + bias_f32_offset_ + begin * sizeof(float), bias,
                count * sizeof(float));
  if (dtype_ != DType::kF32) {
    std::vector<uint16_t> rounded(count);
    for (size_t i = 0; i < count; ++i) {
      rounded[i] = dtype_ == DType::kBF16 ? F32ToBF16(bias[i]) : F32ToF16(bias[i]);
    }
    upload_->Copy(memory_.as<std::byte>() + bias_rounded_offset_ + begin * sizeof(uint16_t), rounded.data(),
                  count * sizeof(uint16_t));
  }
  has_bias_.store(true, std::memory_order_relaxed);
}

void CudaLinearWeight::FillRandom(uint64_t seed, float bound) {
  const std::unique_ptr<Stream> stream = device_->CreateStream(StreamKind::kCompute, "random weights");
  LaunchFillRandom(AsCudaStream(*stream), view(), seed, bound);
  stream->Synchronize();
}

}  // namespace tandem
