#include "ops/cuda/linear/quantized/cuda_quantized_weight.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/topology.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {
namespace {

constexpr int kFirstWithCodes = 80;  // compute capability

size_t AlignedPart(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CudaQuantizedWeight::CudaQuantizedWeight(Device* device, std::shared_ptr<WeightUpload> upload,
                                         std::shared_ptr<CodeUpload> code_upload,
                                         const QuantizedWeightShape& shape, const WeightFormat& format)
    : device_(device),
      upload_(std::move(upload)),
      code_upload_(std::move(code_upload)),
      shape_(shape),
      format_(format) {
  if (shape.is_gate_up) order_.emplace(shape.out_features / 2);
  codes_.layout = MakeCodeLayout(format, shape.in_features);
  codes_.out_features = shape.out_features;
}

bool CudaQuantizedWeight::Keeps(const Device& device, const WeightFormat& format, int64_t in_features,
                                DType dtype) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) &&
         CudaTargetOf(device).compute_capability >= kFirstWithCodes && HasCodeLayout(format, in_features);
}

Result<std::unique_ptr<QuantizedLinearWeight>> CudaQuantizedWeight::Create(
    Device* device, std::shared_ptr<WeightUpload> upload, std::shared_ptr<CodeUpload> code_upload,
    const QuantizedWeightShape& shape, const WeightFormat& format) {
  TANDEM_CHECK(
      shape.out_features > 0 && shape.in_features > 0 && (!shape.is_gate_up || shape.out_features % 2 == 0),
      "weight [{}, {}], gate-up {}", shape.out_features, shape.in_features, shape.is_gate_up);
  if (!Keeps(*device, format, shape.in_features, shape.dtype)) {
    return MakeError(ErrorCode::kUnsupported, "this GPU multiplies no weight [{}, {}] of {} at {}",
                     shape.out_features, shape.in_features, DescribeWeightFormat(format),
                     DTypeName(shape.dtype));
  }
  std::unique_ptr<CudaQuantizedWeight> weight(
      new CudaQuantizedWeight(device, std::move(upload), std::move(code_upload), shape, format));
  const auto outputs = static_cast<size_t>(shape.out_features);
  const size_t factors_offset =
      AlignedPart(static_cast<size_t>(weight->codes_.layout.TotalBytes(shape.out_features)));
  const size_t bias_offset = factors_offset + AlignedPart(outputs * sizeof(float));
  const size_t rounded_bias_offset = bias_offset + AlignedPart(outputs * sizeof(float));
  TANDEM_ASSIGN_OR_RETURN(
      weight->memory_, device->Allocate(rounded_bias_offset + outputs * sizeof(uint16_t), MemoryKind::kDevice,
                                        fmt::format("a weight [{}, {}] of {}", shape.out_features,
                                                    shape.in_features, DescribeWeightFormat(format))));
  auto* memory = weight->memory_.as<std::byte>();
  weight->codes_.records = memory;
  weight->codes_.factors = reinterpret_cast<float*>(memory + factors_offset);
  weight->bias_ = reinterpret_cast<float*>(memory + bias_offset);
  weight->rounded_bias_ = reinterpret_cast<uint16_t*>(memory + rounded_bias_offset);
  const std::unique_ptr<Stream> stream = device->CreateStream(StreamKind::kCompute, "codes");
  TANDEM_CUDA_CHECK(cudaMemsetAsync(memory, 0, weight->memory_.size_bytes(), AsCudaStream(*stream).handle()));
  stream->Synchronize();
  return std::unique_ptr<QuantizedLinearWeight>(std::move(weight));
}

const float* CudaQuantizedWeight::bias() const {
  return has_bias_.load(std::memory_order_relaxed) ? bias_ : nullptr;
}

void CudaQuantizedWeight::CheckRows(int64_t row_begin, int64_t num_rows) const {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= shape_.out_features,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, shape_.out_features);
}

void CudaQuantizedWeight::LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) {
  CheckRows(row_begin, rows.num_rows);
  TANDEM_CHECK(rows.format == format_ && rows.cols == shape_.in_features, "rows of {} as {} for {} as {}",
               rows.cols, DescribeWeightFormat(rows.format), shape_.in_features,
               DescribeWeightFormat(format_));
  std::vector<int32_t> places(static_cast<size_t>(rows.num_rows));
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = static_cast<int32_t>(PlaceOf(row_begin + static_cast<int64_t>(i)));
  }
  code_upload_->Pack(rows, places, codes_);
}

void CudaQuantizedWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  CheckRows(row_begin, num_rows);
  std::vector<float> values(static_cast<size_t>(num_rows * shape_.in_features));
  const auto* from = static_cast<const uint16_t*>(rows);
  std::transform(from, from + values.size(), values.begin(),
                 shape_.dtype == DType::kBF16 ? BF16ToF32 : F16ToF32);
  QuantizedRows quantized;
  QuantizeRows(values.data(), num_rows, shape_.in_features, format_, &quantized);
  LoadQuantizedRows(row_begin, quantized);
}

template <typename Number>
void CudaQuantizedWeight::UploadInOrder(Number* all, int64_t row_begin, int64_t num_rows,
                                        const Number* numbers) {
  const int64_t end = row_begin + num_rows;
  for (int64_t row = row_begin; row < end;) {
    // Rows up to the end of a block stay together.
    const int64_t count =
        order_ ? std::min(order_->block() - row % (shape_.out_features / 2) % order_->block(), end - row)
               : num_rows;
    upload_->Copy(all + PlaceOf(row), numbers + (row - row_begin),
                  static_cast<size_t>(count) * sizeof(Number));
    row += count;
  }
}

void CudaQuantizedWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  CheckRows(row_begin, num_rows);
  UploadInOrder(bias_, row_begin, num_rows, bias);
  std::vector<uint16_t> rounded(static_cast<size_t>(num_rows));
  std::transform(bias, bias + num_rows, rounded.begin(), shape_.dtype == DType::kBF16 ? F32ToBF16 : F32ToF16);
  UploadInOrder(rounded_bias_, row_begin, num_rows, static_cast<const uint16_t*>(rounded.data()));
  has_bias_.store(true, std::memory_order_relaxed);
}

void CudaQuantizedWeight::FillRandom(uint64_t seed, float bound) {
  constexpr int64_t kRowsAtOnce = 64;
  std::atomic<int64_t> next_row{0};
  const auto work = [&] {
    QuantizedRows rows;
    for (int64_t begin = next_row.fetch_add(kRowsAtOnce); begin < shape_.out_features;
         begin = next_row.fetch_add(kRowsAtOnce)) {
      HashedRows(seed, bound, begin, std::min(kRowsAtOnce, shape_.out_features - begin), shape_.in_features,
                 format_, &rows);
      LoadQuantizedRows(begin, rows);
    }
  };
  const auto num_threads = std::min<int64_t>((shape_.out_features + kRowsAtOnce - 1) / kRowsAtOnce,
                                             MachineTopology().num_physical_cores);
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem
