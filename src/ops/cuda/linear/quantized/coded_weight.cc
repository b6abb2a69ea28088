#include "ops/cuda/linear/quantized/coded_weight.h"

#include <algorithm>
#include <utility>

#include "base/all_cores.h"
#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"

namespace tandem {
namespace {

size_t AlignedPart(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CudaCodedWeight::CudaCodedWeight(Device* device, std::shared_ptr<WeightUpload> upload,
                                 const QuantizedWeightShape& shape, const WeightFormat& format)
    : device_(device), upload_(std::move(upload)), shape_(shape), format_(format) {
  TANDEM_CHECK(
      shape.out_features > 0 && shape.in_features > 0 && (!shape.is_gate_up || shape.out_features % 2 == 0),
      "weight [{}, {}], gate-up {}", shape.out_features, shape.in_features, shape.is_gate_up);
  if (shape.is_gate_up) order_.emplace(shape.out_features / 2);
}

Result<CudaCodedWeight::Parts> CudaCodedWeight::Allocate(size_t codes_bytes, size_t numbers_bytes) {
  const auto outputs = static_cast<size_t>(shape_.out_features);
  const size_t numbers_offset = AlignedPart(codes_bytes);
  const size_t bias_offset = numbers_offset + AlignedPart(numbers_bytes);
  const size_t rounded_bias_offset = bias_offset + AlignedPart(outputs * sizeof(float));
  TANDEM_ASSIGN_OR_RETURN(
      memory_, device_->Allocate(rounded_bias_offset + outputs * sizeof(uint16_t), MemoryKind::kDevice,
                                 fmt::format("a weight [{}, {}] of {}", shape_.out_features,
                                             shape_.in_features, DescribeWeightFormat(format_))));
  auto* memory = memory_.as<std::byte>();
  bias_ = reinterpret_cast<float*>(memory + bias_offset);
  rounded_bias_ = reinterpret_cast<uint16_t*>(memory + rounded_bias_offset);
  const std::unique_ptr<Stream> stream = device_->CreateStream(StreamKind::kCompute, "codes");
  TANDEM_CUDA_CHECK(cudaMemsetAsync(memory, 0, memory_.size_bytes(), AsCudaStream(*stream).handle()));
  stream->Synchronize();
  return Parts{.codes = memory, .numbers = memory + numbers_offset};
}

const float* CudaCodedWeight::bias() const {
  return has_bias_.load(std::memory_order_relaxed) ? bias_ : nullptr;
}

void CudaCodedWeight::CheckRows(int64_t row_begin, int64_t num_rows) const {
  TANDEM_CHECK(row_begin >= 0 && num_rows >= 0 && row_begin + num_rows <= shape_.out_features,
               "rows [{}, {}) of a weight with {}", row_begin, row_begin + num_rows, shape_.out_features);
}

void CudaCodedWeight::CheckRows(int64_t row_begin, const QuantizedRows& rows) const {
  CheckRows(row_begin, rows.num_rows);
  TANDEM_CHECK(rows.format == format_ && rows.cols == shape_.in_features, "rows of {} as {} for {} as {}",
               rows.cols, DescribeWeightFormat(rows.format), shape_.in_features,
               DescribeWeightFormat(format_));
}

std::vector<int32_t> CudaCodedWeight::PlacesOf(int64_t row_begin, int64_t num_rows) const {
  std::vector<int32_t> places(static_cast<size_t>(num_rows));
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t row = row_begin + static_cast<int64_t>(i);
    places[i] = static_cast<int32_t>(order_ ? order_->PlaceOf(row) : row);
  }
  return places;
}

void CudaCodedWeight::UploadRows(void* all, size_t value_bytes, int64_t row_begin, int64_t num_rows,
                                 const void* values) {
  upload_->CopyRows({.all = all,
                     .value_bytes = value_bytes,
                     .out_features = shape_.out_features,
                     .order = order_ ? &*order_ : nullptr},
                    row_begin, num_rows, values);
}

void CudaCodedWeight::LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) {
  CheckRows(row_begin, num_rows);
  std::vector<float> values(static_cast<size_t>(num_rows * shape_.in_features));
  const auto* from = static_cast<const uint16_t*>(rows);
  std::transform(from, from + values.size(), values.begin(),
                 shape_.dtype == DType::kBF16 ? BF16ToF32 : F16ToF32);
  QuantizedRows quantized;
  QuantizeRows(values.data(), num_rows, shape_.in_features, format_, &quantized);
  LoadQuantizedRows(row_begin, quantized);
}

void CudaCodedWeight::LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) {
  CheckRows(row_begin, num_rows);
  UploadRows(bias_, sizeof(float), row_begin, num_rows, bias);
  std::vector<uint16_t> rounded(static_cast<size_t>(num_rows));
  std::transform(bias, bias + num_rows, rounded.begin(), shape_.dtype == DType::kBF16 ? F32ToBF16 : F32ToF16);
  UploadRows(rounded_bias_, sizeof(uint16_t), row_begin, num_rows, rounded.data());
  has_bias_.store(true, std::memory_order_relaxed);
}

void CudaCodedWeight::FillRandom(const RandomValues& values) {
  TANDEM_CHECK(values.part == nullptr, "codes depend on whole rows");
  constexpr int64_t kRowsAtOnce = 64;
  const int64_t num_pieces = (shape_.out_features + kRowsAtOnce - 1) / kRowsAtOnce;
  ForEachOnAllCores<QuantizedRows>(num_pieces, [&](int64_t piece, QuantizedRows* rows) {
    const int64_t begin = piece * kRowsAtOnce;
    HashedRows(values.seed, values.bound, begin, std::min(kRowsAtOnce, shape_.out_features - begin),
               shape_.in_features, format_, rows);
    LoadQuantizedRows(begin, *rows);
  });
}

}  // namespace tandem
