// What the op tests share: a host device with a stream, random matrices, and the processor's instruction
// sets.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "simd/isa_test_name.h"

namespace tandem {

// Ops of one instruction set on a stream with a number of threads.
class OpTestBench {
 public:
  explicit OpTestBench(CpuIsa isa = BestCpuIsa(), int num_threads = 2, OneDnnUse onednn = OneDnnUse::kNever)
      : ops_(CreateHostOps({isa, onednn})) {
    HostDeviceOptions options;
    options.num_compute_threads = num_threads;
    device_ = CreateHostDevice(options);
    stream_ = device_->CreateStream(StreamKind::kCompute, "test");
  }

  HostOps& ops() { return *ops_; }
  Stream& stream() { return *stream_; }
  void Synchronize() { stream_->Synchronize(); }

 private:
  std::unique_ptr<HostOps> ops_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

// A matrix of fp32 or bf16, dense or with a gap after each row, poisoned with NaN until it is filled.
class TestMatrix {
 public:
  TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0)
      : bytes_(static_cast<size_t>(rows * (cols + gap)) * DTypeSize(dtype), std::byte{0xff}) {
    view_ = {bytes_.data(), dtype, rows, cols, cols + gap};
  }
  TestMatrix(TestMatrix&&) = default;  // the bytes stay where the view points
  TestMatrix(const TestMatrix&) = delete;
  TestMatrix& operator=(const TestMatrix&) = delete;
  TestMatrix& operator=(TestMatrix&&) = delete;
  ~TestMatrix() = default;

  // The same values, dense and in fp32.
  TestMatrix Values() const {
    TestMatrix copy(DType::kF32, view_.rows, view_.cols);
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) copy.Set(r, c, Get(r, c));
    }
    return copy;
  }

  const MatrixView& view() const { return view_; }
  float Get(int64_t row, int64_t col) const {
    const std::byte* at = static_cast<const std::byte*>(view_.RowData(row));
    if (view_.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, at + col * 4, 4);
      return value;
    }
    bf16_t value;
    std::memcpy(&value, at + col * 2, 2);
    return BF16ToF32(value);
  }
  void Set(int64_t row, int64_t col, float value) {
    std::byte* at = static_cast<std::byte*>(view_.RowData(row));
    if (view_.dtype == DType::kF32) {
      std::memcpy(at + col * 4, &value, 4);
      return;
    }
    const bf16_t rounded = F32ToBF16(value);
    std::memcpy(at + col * 2, &rounded, 2);
  }
  template <typename Random>
  TestMatrix& Fill(Random& random, float scale = 1.0F) {
    std::normal_distribution<float> normal(0.0F, scale);
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) Set(r, c, normal(random));
    }
    return *this;
  }
  bool RowEquals(int64_t row, const TestMatrix& other, int64_t other_row) const {
    return std::memcmp(view_.RowData(row), other.view_.RowData(other_row),
                       static_cast<size_t>(view_.cols) * DTypeSize(view_.dtype)) == 0;
  }

 private:
  std::vector<std::byte> bytes_;
  MatrixView view_;
};

}  // namespace tandem
