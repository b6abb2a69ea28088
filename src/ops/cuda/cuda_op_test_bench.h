// What the tests of the cuda ops share: a GPU with a stream, matrices in its memory, the host reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/matrix_view.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"
#include "ops/cuda/cuda_ops.h"

namespace tandem {

// For what is chosen by the GPU without one: a T4 and an A100.
constexpr CudaTarget kTuringTarget = {
    .compute_capability = 75, .num_sms = 40, .max_shared_bytes_per_block = 64 << 10, .l2_bytes = 4 << 20};
constexpr CudaTarget kAmpereTarget = {
    .compute_capability = 80, .num_sms = 108, .max_shared_bytes_per_block = 163 << 10, .l2_bytes = 40 << 20};

inline DType EngineDType(const Device& device) {
  constexpr int kFirstWithBF16 = 80;
  return CudaTargetOf(device).compute_capability >= kFirstWithBF16 ? DType::kBF16 : DType::kF16;
}

// Tests of the cuda backend derive from this; without a GPU they are skipped.
class CudaOpTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice({});
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    device_ = std::move(device).value();
    stream_ = device_->CreateStream(StreamKind::kCompute, "test");
    ops_ = CreateCudaOps(device_.get(), {.tuning_folder = "", .tune_linear = false});
  }
  Device& device() { return *device_; }
  Ops& ops() { return *ops_; }
  Stream& stream() { return *stream_; }
  std::mt19937& random() { return random_; }
  // The type of 16 bits that the GPU has kernels for: what the engine takes there.
  DType engine_dtype() const { return EngineDType(*device_); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::mt19937 random_{1};
};

// Values in host memory (fp32) beside the same values, rounded to dtype, in GPU memory. Rows may be followed
// by a gap. GPU memory is poisoned with NaN until Upload.
class CudaMatrix {
 public:
  CudaMatrix(Device& device, DType dtype, int64_t rows, int64_t cols, int64_t gap = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + gap) {
    values_.resize(static_cast<size_t>(rows * cols));
    bytes_.assign(static_cast<size_t>(rows * stride_) * DTypeSize(dtype), std::byte{0xff});
    auto buffer = device.Allocate(bytes_.size(), MemoryKind::kDevice, "test matrix");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = std::move(buffer).value();
    stream_ = device.CreateStream(StreamKind::kCopy, "test matrix");
    stream_->Copy(buffer_.data(), bytes_.data(), bytes_.size());
    stream_->Synchronize();
  }

  MatrixView view() const { return {buffer_.data(), dtype_, rows_, cols_, stride_}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float& At(int64_t row, int64_t col) { return values_[static_cast<size_t>(row * cols_ + col)]; }
  float At(int64_t row, int64_t col) const { return values_[static_cast<size_t>(row * cols_ + col)]; }
  const float* Row(int64_t row) const { return values_.data() + row * cols_; }

  // Normal deviates, rounded to dtype, on both sides.
  CudaMatrix& Fill(std::mt19937& random, float scale = 1.0F) {
    std::normal_distribution<float> normal(0.0F, scale);
    for (float& value : values_) value = normal(random);
    Upload();
    return *this;
  }
  // Rounds the values to dtype and copies them to the GPU.
  void Upload() {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        float& value = At(r, c);
        std::byte* at = bytes_.data() + static_cast<size_t>(r * stride_ + c) * DTypeSize(dtype_);
        if (dtype_ == DType::kF32) {
          std::memcpy(at, &value, 4);
          continue;
        }
        const uint16_t bits = dtype_ == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
        std::memcpy(at, &bits, 2);
        value = dtype_ == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
      }
    }
    stream_->Copy(buffer_.data(), bytes_.data(), bytes_.size());
    stream_->Synchronize();
  }
  // Copies the GPU's values back. Work on other streams must have ended.
  CudaMatrix& Download() {
    stream_->Copy(bytes_.data(), buffer_.data(), bytes_.size());
    stream_->Synchronize();
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        const std::byte* at = bytes_.data() + static_cast<size_t>(r * stride_ + c) * DTypeSize(dtype_);
        if (dtype_ == DType::kF32) {
          std::memcpy(&At(r, c), at, 4);
          continue;
        }
        uint16_t bits;
        std::memcpy(&bits, at, 2);
        At(r, c) = dtype_ == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
      }
    }
    return *this;
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  Buffer buffer_;
  std::unique_ptr<Stream> stream_;
};

// Anything trivially copyable, in GPU memory.
template <typename T>
class CudaArray {
 public:
  CudaArray(Device& device, const std::vector<T>& values) {
    auto buffer = device.Allocate(values.size() * sizeof(T), MemoryKind::kDevice, "test array");
    TANDEM_CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = std::move(buffer).value();
    const auto stream = device.CreateStream(StreamKind::kCopy, "test array");
    stream->Copy(buffer_.data(), values.data(), values.size() * sizeof(T));
    stream->Synchronize();
  }
  T* data() const { return buffer_.as<T>(); }

 private:
  Buffer buffer_;
};

// ||a - b|| / ||b||; NaN or infinity in a give infinity.
inline double RelativeError(const float* a, const double* b, int64_t count) {
  double difference = 0;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace tandem
