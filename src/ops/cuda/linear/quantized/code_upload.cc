#include "ops/cuda/linear/quantized/code_upload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "ops/cuda/linear/quantized/pack_codes.h"

namespace tandem {
namespace {

constexpr size_t kStagingBytes = size_t{4} << 20;

// Bytes of the parts of some rows in staging, one behind the other.
struct Parts {
  size_t numbers = 0;  // where each begins
  size_t factors = 0;
  size_t places = 0;
  size_t end = 0;
};

Parts PartsOf(const QuantizedRows& rows, int64_t num_rows) {
  const auto count = static_cast<size_t>(num_rows);
  const size_t numbers_a_row = static_cast<size_t>(rows.num_groups()) * (rows.format.has_minimum ? 2 : 1);
  const auto aligned = [](size_t bytes) { return (bytes + 15) / 16 * 16; };
  Parts parts;
  parts.numbers = aligned(count * static_cast<size_t>(rows.cols));
  parts.factors = parts.numbers + aligned(count * numbers_a_row * sizeof(uint16_t));
  parts.places = parts.factors + aligned(count * sizeof(float));
  parts.end = parts.places + aligned(count * sizeof(int32_t));
  return parts;
}

// The power of two that brings the row's largest value just below the end of fp16's range, so that small
// scales keep their bits. A row whose values are within that range is made no smaller: scales that are fp16
// already would lose some.
float FactorOfRow(const QuantizedRows& rows, int64_t row) {
  constexpr int kLargestExponent = 14;
  constexpr float kLargestHalf = 65504.0F;
  const bool has_minimum = rows.format.has_minimum;
  const auto largest_code =
      static_cast<float>(has_minimum ? 2 * rows.format.zero_code() - 1 : rows.format.zero_code());
  float largest = 0.0F;
  for (int64_t i = row * rows.num_groups(); i < (row + 1) * rows.num_groups(); ++i) {
    const auto at = static_cast<size_t>(i);
    const float minimum = has_minimum ? std::abs(rows.minimums[at]) : 0.0F;
    largest = std::max(largest, std::abs(rows.scales[at]) * largest_code + minimum);
  }
  if (largest == 0.0F || !std::isfinite(largest)) return 1.0F;
  const float factor = std::ldexp(1.0F, std::max(std::ilogb(largest) - kLargestExponent, -126));
  return largest <= kLargestHalf ? std::min(factor, 1.0F) : factor;
}

}  // namespace

void CodeUpload::Pack(const QuantizedRows& rows, std::span<const int32_t> places, const CodesView& to) {
  TANDEM_CHECK(static_cast<int64_t>(places.size()) == rows.num_rows && rows.cols == to.layout.in_features,
               "{} places for rows [{}, {}] of a weight with {} columns", places.size(), rows.num_rows,
               rows.cols, to.layout.in_features);
  if (rows.num_rows == 0) return;
  const size_t row_bytes = PartsOf(rows, 1).end;
  const int64_t rows_at_once =
      std::min(rows.num_rows, std::max<int64_t>(1, static_cast<int64_t>(kStagingBytes / row_bytes)));
  std::unique_ptr<Lane> lane = TakeLane(std::max(kStagingBytes, row_bytes));
  for (int64_t begin = 0; begin < rows.num_rows; begin += rows_at_once) {
    PackPiece(*lane, rows, places, begin, std::min(rows_at_once, rows.num_rows - begin), to);
  }
  const std::lock_guard lock(mutex_);
  free_lanes_.push_back(std::move(lane));
}

void CodeUpload::PackPiece(Lane& lane, const QuantizedRows& rows, std::span<const int32_t> places,
                           int64_t begin, int64_t count, const CodesView& to) {
  const Parts parts = PartsOf(rows, count);
  auto* staged = lane.pinned.as<std::byte>();
  std::memcpy(staged, rows.codes.data() + begin * rows.cols, static_cast<size_t>(count * rows.cols));
  auto* number = reinterpret_cast<uint16_t*>(staged + parts.numbers);
  auto* factors = reinterpret_cast<float*>(staged + parts.factors);
  for (int64_t row = 0; row < count; ++row) {
    const float factor = FactorOfRow(rows, begin + row);
    factors[row] = factor;
    for (int64_t g = 0; g < rows.num_groups(); ++g) {
      const auto at = static_cast<size_t>((begin + row) * rows.num_groups() + g);
      *number++ = F32ToF16(rows.scales[at] / factor);
      if (rows.format.has_minimum) *number++ = F32ToF16(rows.minimums[at] / factor);
    }
  }
  std::memcpy(staged + parts.places, places.data() + begin, static_cast<size_t>(count) * sizeof(int32_t));
  lane.stream->Copy(lane.device.data(), staged, parts.end);
  const auto* there = lane.device.as<std::byte>();
  LaunchPackCodes(AsCudaStream(*lane.stream),
                  {.num_rows = count,
                   .group_size = rows.format.group_size,
                   .codes = reinterpret_cast<const uint8_t*>(there),
                   .numbers = reinterpret_cast<const uint16_t*>(there + parts.numbers),
                   .factors = reinterpret_cast<const float*>(there + parts.factors),
                   .places = reinterpret_cast<const int32_t*>(there + parts.places)},
                  to);
  lane.stream->Synchronize();
}

void CodeUpload::ReleaseStaging() {
  const std::lock_guard lock(mutex_);
  free_lanes_.clear();
}

std::unique_ptr<CodeUpload::Lane> CodeUpload::TakeLane(size_t size_bytes) {
  std::unique_ptr<Lane> lane;
  {
    const std::lock_guard lock(mutex_);
    if (!free_lanes_.empty()) {
      lane = std::move(free_lanes_.back());
      free_lanes_.pop_back();
    }
  }
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    lane->stream = device_->CreateStream(StreamKind::kCompute, "codes");
  }
  const auto make_room = [&](MemoryKind kind, Buffer* buffer) {
    if (buffer->size_bytes() >= size_bytes) return;
    auto memory = device_->Allocate(size_bytes, kind, "staging of codes");
    TANDEM_CHECK(memory.ok(), "{}", memory.error().message);
    *buffer = std::move(memory).value();
  };
  make_room(MemoryKind::kPinned, &lane->pinned);
  make_room(MemoryKind::kDevice, &lane->device);
  return lane;
}

}  // namespace tandem
