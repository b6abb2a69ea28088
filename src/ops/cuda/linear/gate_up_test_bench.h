// What the tests of gate-up products on a GPU share: weights, problems and a reference in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/linear/fused/fused_gate_up.h"
#include "ops/cuda/linear/linear_test_bench.h"

namespace tandem {

class CudaGateUpTest : public CudaLinearTest {
 protected:
  struct Shape {
    int64_t mlp = 0;
    int64_t in = 0;
    DType dtype = DType::kBF16;
    bool bias = false;
  };
  struct Weights {
    Shape shape;
    std::unique_ptr<LinearWeight> weight;
    std::vector<float> values;  // as rounded, in logical order
    std::vector<float> bias;    // empty if none
  };
  // y has a row and 8 columns more than the result: nothing is written there.
  struct Problem {
    CudaMatrix x;
    CudaMatrix scratch;
    CudaMatrix y;

    MatrixView out() const { return y.view().Rows(0, x.rows()).Columns(0, y.cols() - 8); }
  };

  bool CanFuse() { return HasFusedGateUp() && cuda_stream().target().compute_capability == 90; }

  // Gate and up of order 1 for x of order 1.
  Weights MakeWeights(Ops& ops, const Shape& shape) {
    Weights made;
    made.shape = shape;
    std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(shape.in)));
    made.values.resize(static_cast<size_t>(2 * shape.mlp * shape.in));
    for (float& value : made.values) value = normal(random());
    const std::vector<std::byte> bytes = Encode(shape.dtype, &made.values);
    made.weight = ops.CreateGateUpWeight(shape.mlp, shape.in, shape.dtype).value();
    made.weight->LoadRows(0, 2 * shape.mlp, bytes.data());
    if (shape.bias) {
      made.bias.resize(static_cast<size_t>(2 * shape.mlp));
      for (float& value : made.bias) value = normal(random());
      made.weight->LoadBias(0, 2 * shape.mlp, made.bias.data());
    }
    return made;
  }

  Problem MakeProblem(const Weights& weights, int64_t rows, int64_t x_gap = 0) {
    const Shape& shape = weights.shape;
    Problem problem = {CudaMatrix(device(), shape.dtype, rows, shape.in, x_gap),
                       CudaMatrix(device(), shape.dtype, rows, 2 * shape.mlp),
                       CudaMatrix(device(), shape.dtype, rows + 1, shape.mlp + 8)};
    problem.x.Fill(random());
    return problem;
  }

  // fused: gate and up are not rounded on the way. Of large results some rows, with the first and the last.
  void ExpectResult(const Weights& weights, Problem& problem, bool fused) {
    stream().Synchronize();
    problem.y.Download();
    const Shape& shape = weights.shape;
    const int64_t rows = problem.x.rows();
    constexpr int64_t kMaxTerms = 600'000'000;
    const int64_t checked =
        std::clamp<int64_t>(kMaxTerms / (2 * shape.mlp * shape.in), 2, std::max<int64_t>(rows, 2));
    double worst = 0.0;
    std::string message;
    for (int64_t i = 0; i < checked; ++i) {
      const int64_t row = i * (rows - 1) / (checked - 1);
      for (int64_t j = 0; j < shape.mlp; ++j) {
        const Sum gate = Dot(weights, problem.x.Row(row), j);
        const Sum up = Dot(weights, problem.x.Row(row), shape.mlp + j);
        const double silu = gate.value / (1.0 + std::exp(-gate.value));
        const double want = silu * up.value;
        // The slope of silu is at most 1.1.
        const double precision = Precision(shape.dtype);
        const double gate_error = (fused ? 0.0 : precision * gate.rounded) + 1e-5 * gate.magnitude;
        const double up_error = (fused ? 0.0 : precision * up.rounded) + 1e-5 * up.magnitude;
        const double allowed = precision * std::abs(want) +
                               1.1 * gate_error * (std::abs(up.value) + up_error) +
                               (std::abs(silu) + 1.1 * gate_error) * up_error + 1e-6;
        const double got = problem.y.At(row, j);
        const double excess = std::isfinite(got) ? std::abs(got - want) / allowed : 1e30;
        if (excess <= worst) continue;
        worst = excess;
        message = fmt::format("row {} column {}: got {}, want {}, allowed {}", row, j, got, want, allowed);
      }
    }
    EXPECT_LE(worst, 1.0) << rows << " rows, mlp " << shape.mlp << ", in " << shape.in << ", "
                          << DTypeName(shape.dtype) << ": " << message;
    for (int64_t r = 0; r <= rows; ++r) {
      for (int64_t c = r < rows ? shape.mlp : 0; c < problem.y.cols(); ++c) {
        ASSERT_TRUE(std::isnan(problem.y.At(r, c))) << "written past the end of row " << r << " at " << c;
      }
    }
  }

  std::vector<float> Download(const void* data, DType dtype, int64_t count) {
    std::vector<std::byte> bytes(static_cast<size_t>(count) * DTypeSize(dtype));
    stream().Copy(bytes.data(), data, bytes.size());
    stream().Synchronize();
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits = 0;
      if (dtype == DType::kF32) {
        std::memcpy(&values[i], bytes.data() + i * 4, 4);
        continue;
      }
      std::memcpy(&bits, bytes.data() + i * 2, 2);
      values[i] = dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
    }
    return values;
  }
  // Of a weight, as they lie in GPU memory.
  std::vector<float> Values(const LinearWeight& weight) {
    return Download(AsCudaLinearWeight(&weight).view().data, weight.dtype(),
                    weight.out_features() * weight.in_features());
  }
  // NaN like NaN.
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

 private:
  struct Sum {
    double value = 0.0;
    double magnitude = 0.0;
    double rounded = 0.0;  // sum of what is rounded: with a bias it and the sum before it as well
  };
  static Sum Dot(const Weights& weights, const float* x, int64_t row) {
    const float* w = weights.values.data() + row * weights.shape.in;
    Sum sum;
    for (int64_t k = 0; k < weights.shape.in; ++k) {
      const double term = double{x[k]} * double{w[k]};
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    if (!weights.bias.empty()) {
      const double bias = weights.bias[static_cast<size_t>(row)];
      sum.rounded = std::abs(sum.value) + std::abs(bias);
      sum.value += bias;
    }
    sum.rounded += std::abs(sum.value);
    return sum;
  }
};

}  // namespace tandem
