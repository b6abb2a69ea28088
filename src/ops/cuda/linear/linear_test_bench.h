// What the tests of linear operations on a GPU share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/cuda_op_test_bench.h"
#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/linear.h"

namespace tandem {

struct Product {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  DType dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;
  bool bias = false;
  int64_t x_gap = 0;
  int64_t y_gap = 0;
};

inline std::string Name(const Product& p) {
  return fmt::format("{} rows, weight [{}, {}] {}, y {}, bias {}, gaps {} and {}", p.rows, p.out, p.in,
                     DTypeName(p.dtype), DTypeName(p.y_dtype), p.bias, p.x_gap, p.y_gap);
}

inline double Precision(DType dtype) {
  if (dtype == DType::kF32) return 1e-6;
  return dtype == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
}

// A folder that is gone after the test.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / fmt::format("tandem-{}-{}", name, getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) files.push_back(entry.path());
    return files;
  }

 private:
  std::filesystem::path path_;
};

class CudaLinearTest : public CudaOpTest {
 protected:
  struct Weight {
    std::unique_ptr<LinearWeight> weight;
    std::vector<float> values;  // as rounded
    std::vector<float> bias;    // empty if none
  };

  static std::vector<std::byte> Encode(DType dtype, std::vector<float>* values) {
    std::vector<std::byte> bytes(values->size() * DTypeSize(dtype));
    for (size_t i = 0; i < values->size(); ++i) {
      float& value = (*values)[i];
      if (dtype == DType::kF32) {
        std::memcpy(bytes.data() + i * 4, &value, 4);
        continue;
      }
      const uint16_t bits = dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
      value = dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
    }
    return bytes;
  }

  Weight MakeWeight(Ops& ops, const Product& p) {
    Weight made;
    std::normal_distribution<float> normal;
    made.values.resize(static_cast<size_t>(p.out * p.in));
    for (float& value : made.values) value = normal(random());
    const std::vector<std::byte> bytes = Encode(p.dtype, &made.values);
    made.weight = ops.CreateLinearWeight(p.out, p.in, p.dtype).value();
    // In two pieces, as checkpoints are split.
    const int64_t first = p.out / 3;
    made.weight->LoadRows(0, first, bytes.data());
    made.weight->LoadRows(first, p.out - first,
                          bytes.data() + static_cast<size_t>(first * p.in) * DTypeSize(p.dtype));
    if (p.bias) {
      made.bias.resize(static_cast<size_t>(p.out));
      for (float& value : made.bias) value = normal(random());
      made.weight->LoadBias(first, p.out - first, made.bias.data() + first);
      made.weight->LoadBias(0, first, made.bias.data());
    }
    return made;
  }

  // One message for the worst element.
  static void ExpectProduct(const Product& p, const CudaMatrix& x, const Weight& weight,
                            const CudaMatrix& y) {
    double worst = 0.0;
    std::string message;
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t o = 0; o < p.out; ++o) {
        const float* x_row = x.Row(r);
        const float* w_row = weight.values.data() + o * p.in;
        double want = 0.0;
        double magnitude = 0.0;
        for (int64_t k = 0; k < p.in; ++k) {
          const double term = double{x_row[k]} * double{w_row[k]};
          want += term;
          magnitude += std::abs(term);
        }
        const double bias = weight.bias.empty() ? 0.0 : double{weight.bias[static_cast<size_t>(o)]};
        want += bias;
        // With a bias y may be rounded twice: before a kernel of its own adds the bias, and after.
        const double roundings = weight.bias.empty() ? 1.0 : 2.0;
        const double allowed =
            roundings * Precision(p.y_dtype) * (std::abs(want) + std::abs(bias)) + 1e-5 * magnitude + 1e-6;
        const double got = y.At(r, o);
        const double excess = std::isfinite(got) ? std::abs(got - want) / allowed : 1e30;
        if (excess <= worst) continue;
        worst = excess;
        message = fmt::format("row {} column {}: got {}, want {}, allowed {}", r, o, got, want, allowed);
      }
    }
    EXPECT_LE(worst, 1.0) << Name(p) << ": " << message;
  }

  void ExpectLinear(Ops& ops, const Product& p, const Weight& weight) {
    CudaMatrix x(device(), p.dtype, p.rows, p.in, p.x_gap);
    x.Fill(random());
    CudaMatrix y(device(), p.y_dtype, p.rows, p.out, p.y_gap);
    ops.Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    stream().Synchronize();
    ExpectProduct(p, x, weight, y.Download());
  }

  static const float* BiasOf(const Weight& weight) {
    if (weight.bias.empty()) return nullptr;
    return static_cast<const float*>(AsCudaLinearWeight(weight.weight.get()).bias(DType::kF32));
  }

  CudaStream& cuda_stream() { return AsCudaStream(stream()); }
  bool HasDType(DType dtype) { return dtype != DType::kBF16 || engine_dtype() == DType::kBF16; }
};

}  // namespace tandem
