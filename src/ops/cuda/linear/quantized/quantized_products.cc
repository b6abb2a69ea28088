#include "ops/cuda/linear/quantized/quantized_products.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/linear/cublaslt_product.h"
#include "ops/cuda/linear/fp8/cuda_fp8_weight.h"
#include "ops/cuda/linear/quantized/cuda_quantized_weight.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"

namespace tandem {
namespace {

constexpr size_t kCounterBytes = kQuantizedCounters * sizeof(uint32_t);
static_assert(kQuantizedPartialsBytes <= kLinearWorkspaceBytes);

size_t SlabBytes(const CudaCodedWeight& weight) {
  return static_cast<size_t>(QuantizedProducts::SlabOutputs(weight) * weight.in_features()) *
         DTypeSize(weight.dtype());
}

}  // namespace

bool QuantizedProducts::Keeps(const Device& device, const WeightFormat& format, int64_t in_features,
                              DType dtype) {
  return CudaQuantizedWeight::Keeps(device, format, in_features, dtype) ||
         CudaFp8Weight::Keeps(device, format, in_features, dtype);
}

Result<std::unique_ptr<QuantizedLinearWeight>> QuantizedProducts::CreateWeight(
    std::shared_ptr<WeightUpload> upload, const QuantizedWeightShape& shape, const WeightFormat& format) {
  if (!Keeps(*device_, format, shape.in_features, shape.dtype)) {
    return MakeError(ErrorCode::kUnsupported, "this GPU multiplies no weight [{}, {}] of {} at {}",
                     shape.out_features, shape.in_features, DescribeWeightFormat(format),
                     DTypeName(shape.dtype));
  }
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaCodedWeight> weight,
      format.has_integers()
          ? CudaQuantizedWeight::Create(device_, std::move(upload), code_upload_, shape, format)
          : CudaFp8Weight::Create(device_, std::move(upload), shape, format));
  return std::unique_ptr<QuantizedLinearWeight>(std::move(weight));
}

void QuantizedProducts::ExpectValues(const CudaCodedWeight& weight) {
  const std::lock_guard lock(mutex_);
  values_bytes_ = std::max(values_bytes_, SlabBytes(weight));
}

size_t QuantizedProducts::StreamBytes() const {
  const std::lock_guard lock(mutex_);
  return values_bytes_ == 0 ? 0 : values_bytes_ + kCounterBytes;
}

QuantizedProducts::StreamMemory& QuantizedProducts::MemoryOf(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  return memory_[stream.handle()];
}

void QuantizedProducts::Prepare(CudaStream& stream, const CudaCodedWeight& weight) {
  StreamMemory& memory = MemoryOf(stream);
  const size_t values_bytes = [&] {
    const std::lock_guard lock(mutex_);
    return values_bytes_ = std::max(values_bytes_, SlabBytes(weight));
  }();
  if (memory.counters.data() != nullptr && memory.values.size_bytes() >= values_bytes) return;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TANDEM_CUDA_CHECK(cudaStreamIsCapturing(stream.handle(), &capture));
  TANDEM_CHECK(capture == cudaStreamCaptureStatusNone,
               "linear: stream {} is being captured before its first product of a quantized weight",
               stream.name());
  const auto take = [&](size_t bytes, const char* what) {
    auto buffer = device_->Allocate(bytes, MemoryKind::kDevice, what);
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    return std::move(buffer).value();
  };
  stream.Synchronize();  // what the buffers are taken from
  if (memory.counters.data() == nullptr) {
    memory.counters = take(kCounterBytes, "counters of quantized products");
    TANDEM_CUDA_CHECK(cudaMemsetAsync(memory.counters.data(), 0, kCounterBytes, stream.handle()));
  }
  if (memory.values.size_bytes() < values_bytes) {
    memory.values = Buffer();
    memory.values = take(values_bytes, "values of quantized weights");
  }
}

QuantizedWorkspace QuantizedProducts::WorkspaceOf(CudaStream& stream) {
  return {.partials = static_cast<float*>(runner_->WorkspaceMemory(stream)),
          .counters = MemoryOf(stream).counters.as<uint32_t>()};
}

bool QuantizedProducts::UsesCodes(const MatrixView& x, const CudaCodedWeight& weight,
                                  const MatrixView& y) const {
  return weight.CanMultiply(runner_->target(), code_rows_, x, y);
}

void QuantizedProducts::RunCodes(CudaStream& stream, const MatrixView& x, const CudaCodedWeight& weight,
                                 const MatrixView& y) {
  weight.LaunchProduct(stream, code_rows_, x, y, WorkspaceOf(stream));
}

bool QuantizedProducts::RunGateUpCodes(CudaStream& stream, const MatrixView& x, const CudaCodedWeight& weight,
                                       const MatrixView& y) {
  return weight.LaunchGateUp(stream, code_rows_, x, y, WorkspaceOf(stream));
}

int64_t QuantizedProducts::SlabOutputs(const CudaCodedWeight& weight) {
  constexpr int64_t kOutputStep = 128;
  static_assert(kOutputStep % kCodePanelOutputs == 0);
  const auto row_bytes = weight.in_features() * static_cast<int64_t>(DTypeSize(weight.dtype()));
  const int64_t fitting = static_cast<int64_t>(kDequantizedBytes) / row_bytes / kOutputStep * kOutputStep;
  return std::min(weight.out_features(), std::max(kOutputStep, fitting));
}

CudaLinearWeight QuantizedProducts::Slab(CudaStream& stream, const CudaCodedWeight& weight,
                                         int64_t first_output) {
  const int64_t outputs = std::min(SlabOutputs(weight), weight.out_features() - first_output);
  const MatrixView values =
      MatrixView::Dense(MemoryOf(stream).values.data(), weight.dtype(), outputs, weight.in_features());
  weight.LaunchDequantize(stream, first_output, values);
  const bool is_whole = outputs == weight.out_features();
  const float* bias = weight.bias();
  return {values, bias == nullptr ? nullptr : bias + first_output,
          bias == nullptr ? nullptr : weight.rounded_bias() + first_output, weight.is_gate_up() && is_whole};
}

}  // namespace tandem
