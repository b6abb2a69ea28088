// Tests of the rider ops that every backend has to pass. Values are bytes: the ops only copy.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/matrix_view.h"
#include "device/device.h"
#include "ops/ops.h"
#include "ops/riders.h"

namespace tandem {

using Bytes = std::vector<std::byte>;
inline constexpr std::byte kRiderPoison{0xff};

struct RiderBackend {
  Device* device = nullptr;
  Ops* ops = nullptr;
  Stream* stream = nullptr;
};

// A matrix of any memory, of poison until it is written; moves of its bytes block.
class RiderMatrix {
 public:
  RiderMatrix() = default;
  RiderMatrix(const RiderBackend& backend, MemoryKind kind, DType dtype, int64_t rows, int64_t cols,
              int64_t gap = 0)
      : stream_(backend.stream),
        row_bytes_(static_cast<size_t>(cols) * DTypeSize(dtype)),
        stride_bytes_(static_cast<size_t>(cols + gap) * DTypeSize(dtype)) {
    auto buffer = backend.device->Allocate(static_cast<size_t>(rows) * stride_bytes_, kind, "test matrix");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = std::move(buffer).value();
    view_ = {buffer_.data(), dtype, rows, cols, cols + gap};
    Poison();
  }

  const MatrixView& view() const { return view_; }
  void Write(const Bytes& bytes) {
    TANDEM_CHECK(bytes.size() == buffer_.size_bytes());
    stream_->Copy(buffer_.data(), bytes.data(), bytes.size());
    stream_->Synchronize();
  }
  void Poison() { Write(Bytes(buffer_.size_bytes(), kRiderPoison)); }
  Bytes Fill(std::mt19937& random) {
    Bytes bytes(buffer_.size_bytes());
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint32_t)) {
      const auto word = static_cast<uint32_t>(random());
      std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
    }
    Write(bytes);
    return bytes;
  }
  // Gaps included.
  Bytes Read() const {
    Bytes bytes(buffer_.size_bytes());
    stream_->Copy(bytes.data(), buffer_.data(), bytes.size());
    stream_->Synchronize();
    return bytes;
  }
  // A row of what Read or Fill gave.
  Bytes Row(const Bytes& bytes, int64_t row) const {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * stride_bytes_);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(row_bytes_));
  }
  void SetRow(int64_t row, const Bytes& value, Bytes* bytes) const {
    std::copy(value.begin(), value.end(),
              bytes->begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * stride_bytes_));
  }

 private:
  Stream* stream_ = nullptr;
  size_t row_bytes_ = 0;
  size_t stride_bytes_ = 0;
  Buffer buffer_;
  MatrixView view_;
};

// A cohort's state between visits.
struct RiderCohort {
  RiderCohort(const RiderBackend& backend, const RiderCapacity& capacity, int64_t rows)
      : num_rows(rows),
        residual(backend, MemoryKind::kDevice, DType::kF32, rows, capacity.hidden),
        positions(backend, MemoryKind::kDevice, DType::kI32, 1, rows),
        attention_out(backend, MemoryKind::kPinned, capacity.dtype, rows, capacity.q_width),
        qkv(backend, MemoryKind::kPinned, capacity.product_dtype, rows, capacity.qkv_width),
        done(backend.device->CreateFlag()),
        ready(backend.device->CreateFlag()) {}

  RiderGroup Group(const RiderCapacity& capacity, int64_t boundary, uint32_t done_value,
                   uint32_t ready_value) const {
    RiderGroup group;
    group.boundary = boundary;
    group.residual = residual.view();
    group.positions = static_cast<const int32_t*>(positions.view().data);
    if (boundary >= 0) {
      group.attention_out = attention_out.view();
      group.done = done.get();
      group.done_value = done_value;
    }
    if (boundary < capacity.num_boundaries - 2) {
      group.qkv = qkv.view();
      group.ready = ready.get();
      group.ready_value = ready_value;
    }
    return group;
  }

  int64_t num_rows;
  RiderMatrix residual;
  RiderMatrix positions;
  RiderMatrix attention_out;
  RiderMatrix qkv;
  std::unique_ptr<Flag> done;
  std::unique_ptr<Flag> ready;
};

// The rows behind the main rows.
struct RiderBatch {
  RiderBatch(const RiderBackend& backend, const RiderCapacity& capacity, int64_t num_rows, int64_t gap = 0)
      : residual(backend, MemoryKind::kDevice, DType::kF32, num_rows, capacity.hidden, gap),
        attention_out(backend, MemoryKind::kDevice, capacity.dtype, num_rows, capacity.q_width, gap),
        qkv(backend, MemoryKind::kDevice, capacity.product_dtype, num_rows, capacity.qkv_width, gap),
        positions(backend, MemoryKind::kDevice, DType::kI32, 1, num_rows) {}

  RiderArgs Args(int64_t boundary, int64_t row_begin, int64_t num_rows) const {
    return {.boundary = boundary,
            .row_begin = row_begin,
            .num_rows = num_rows,
            .residual = residual.view(),
            .attention_out = attention_out.view(),
            .qkv = qkv.view(),
            .positions = static_cast<int32_t*>(positions.view().data)};
  }

  RiderMatrix residual;
  RiderMatrix attention_out;
  RiderMatrix qkv;
  RiderMatrix positions;
};

struct RiderTestShape {
  DType dtype = DType::kF32;
  int64_t hidden = 0;
  int64_t q_width = 0;
  int64_t qkv_width = 0;
  int64_t gap = 0;  // of the batch's rows
};

inline std::string Name(const RiderTestShape& shape) {
  return std::string(DTypeName(shape.dtype)) + ", hidden " + std::to_string(shape.hidden) + ", q " +
         std::to_string(shape.q_width) + ", qkv " + std::to_string(shape.qkv_width) + ", gap " +
         std::to_string(shape.gap);
}

// Whole and odd runs of 16 bytes, less than one, rows that do not start at 16 bytes, a real model's.
inline std::vector<RiderTestShape> RiderTestShapes() {
  std::vector<RiderTestShape> shapes;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    shapes.push_back({dtype, 24, 40, 56, 0});
    shapes.push_back({dtype, 24, 40, 56, 3});
    shapes.push_back({dtype, 23, 21, 37, 1});
    shapes.push_back({dtype, 1, 1, 3, 0});
  }
  shapes.push_back({DType::kBF16, 4096, 4096, 6144, 8});
  shapes.push_back({DType::kF32, 5120, 4096, 6152, 0});
  return shapes;
}

inline std::unique_ptr<RiderPlan> CreateTestRiderPlan(const RiderBackend& backend,
                                                      const RiderCapacity& capacity) {
  auto plan = backend.ops->CreateRiderPlan(capacity);
  TANDEM_CHECK(plan.ok(), "{}", plan.error().message);
  return std::move(plan).value();
}

// Every boundary of an iteration, with groups that are done, not done and aborted: rows of those that join
// move, and nothing else changes.
void TestRiderBoundaries(const RiderBackend& backend, const RiderTestShape& shape);
// Two shards decide by the least of what each finds: groups join that can on both.
void TestRidersDecidedAhead(const RiderBackend& backend);
// A graph runs with what the plan holds by then.
void TestRiderGraph(const RiderBackend& backend);
// Cohorts go through their layers while a thread computes what comes from the CPU: each visit has its O as a
// whole or not at all.
void TestRiderRace(const RiderBackend& backend, int64_t num_tokens);

}  // namespace tandem
