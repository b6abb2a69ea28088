#include "ops/cuda/linear/fp8/fp8_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/linear/fp8/cuda_fp8_weight.h"
#include "ops/cuda/linear/fp8/fp8_rows.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/quantized/code_rows.h"
#include "ops/cuda/linear/quantized/quantized_test_bench.h"

namespace tandem {
namespace {

struct Fp8Shape {
  int64_t out = 0;
  int64_t in = 0;
  int64_t group_size = 0;
};

class CudaFp8Test : public CudaQuantizedTest {
 protected:
  void SetUp() override {
    CudaQuantizedTest::SetUp();
    if (IsSkipped()) return;
    if (cuda_stream().target().compute_capability < 80) GTEST_SKIP() << "needs compute capability 8.0";
    weights_only_ = CreateCudaOps(&device(), {.tune_linear = false, .fp8_products = false});
  }

  // Activations stay as they are: up to CodeRows::max by the own kernel, which rounds no weight, beyond that
  // by values.
  Ops& weights_only() { return *weights_only_; }
  bool HasFp8Products() { return cuda_stream().target().compute_capability >= 89; }

  // What LaunchQuantizeToFp8 makes of x.
  static void RoundToFp8(CudaMatrix* x) {
    for (int64_t r = 0; r < x->rows(); ++r) {
      float largest = 0.0F;
      for (int64_t k = 0; k < x->cols(); ++k) largest = std::max(largest, std::abs(x->At(r, k)));
      const float inverse = kLargestE4M3 / largest;
      for (int64_t k = 0; k < x->cols(); ++k) {
        x->At(r, k) = E4M3ToF32(F32ToE4M3(x->At(r, k) * inverse)) * (largest / kLargestE4M3);
      }
    }
  }

  // Of more rows, where no product of FP8 by FP8 is made, values of bf16 are.
  static double RoundingOfWeights(int64_t rows) { return rows > CodeRows{}.max ? 0x1p-8 : 0.0; }

  // Of products of FP8 by FP8: the tensor cores' sums have some 13 bits.
  static constexpr double kSumPrecision = 1e-3;

  const std::vector<Fp8Shape> shapes_ = {{576, 576, 576},  {960, 1536, 1536}, {96, 80, 80},   {16, 16, 16},
                                         {256, 384, 128},  {130, 768, 128},   {77, 512, 512}, {1, 128, 128},
                                         {300, 1152, 384}, {144, 1280, 1280}};

 private:
  std::unique_ptr<Ops> weights_only_;
};

// Every code, from packing to every reader: if this fails, the bit tricks are wrong, or the layout.
TEST_F(CudaFp8Test, EveryCodeHasItsValue) {
  QuantizedRows rows;
  rows.Resize(Fp8Format(256), 1, 256);
  for (size_t i = 0; i < 256; ++i) rows.codes[i] = static_cast<uint8_t>((i & 0x7fU) == 0x7fU ? 0 : i);
  rows.scales = {1.0F};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto weight = weights_only().CreateQuantizedWeight({1, 256, dtype}, rows.format).value();
    weight->LoadQuantizedRows(0, rows);
    CudaMatrix values(device(), dtype, 1, 256);
    dynamic_cast<const CudaCodedWeight&>(*weight).LaunchDequantize(cuda_stream(), 0, values.view());
    const CudaArray<int32_t> ids(device(), {0});
    CudaMatrix gathered(device(), DType::kF32, 1, 256);
    weights_only().Embedding(stream(),
                             {.ids = ids.data(), .out = gathered.view(), .quantized = weight.get()});
    stream().Synchronize();
    CudaMatrix x(device(), dtype, 256, 256);
    for (int64_t r = 0; r < 256; ++r) {
      for (int64_t k = 0; k < 256; ++k) x.At(r, k) = r == k ? 1.0F : 0.0F;
    }
    x.Upload();
    values.Download();
    gathered.Download();
    for (int64_t i = 0; i < 256; ++i) {
      const float want = E4M3ToF32(rows.codes[static_cast<size_t>(i)]);
      EXPECT_EQ(values.At(0, i), want) << DTypeName(dtype) << " code " << i;
      EXPECT_EQ(gathered.At(0, i), want) << DTypeName(dtype) << " code " << i;
    }
    for (const int64_t at_once : {8, 64, 256}) {
      CudaMatrix y(device(), DType::kF32, 256, 1);
      for (int64_t first = 0; first < 256; first += at_once) {
        weights_only().Linear(stream(),
                              {x.view().Rows(first, at_once), weight.get(), y.view().Rows(first, at_once)});
      }
      stream().Synchronize();
      y.Download();
      for (int64_t i = 0; i < 256; ++i) {
        EXPECT_EQ(y.At(i, 0), E4M3ToF32(rows.codes[static_cast<size_t>(i)]))
            << DTypeName(dtype) << " code " << i << ", " << at_once << " rows";
      }
    }
  }
}

TEST_F(CudaFp8Test, DequantizedValuesAreThoseOfTheRows) {
  for (const Fp8Shape& shape : shapes_) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const QuantizedTestWeight weight =
          MakeQuantized(weights_only(), {shape.out, shape.in, dtype}, Fp8Format(shape.group_size));
      CudaMatrix values(device(), dtype, shape.out, shape.in);
      weight.cuda().LaunchDequantize(cuda_stream(), 0, values.view());
      stream().Synchronize();
      values.Download();
      for (int64_t i = 0; i < shape.out * shape.in; ++i) {
        const float value = weight.values[static_cast<size_t>(i)];
        const float want = dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(value)) : F16ToF32(F32ToF16(value));
        ASSERT_EQ(values.At(i / shape.in, i % shape.in), want)
            << weight.Name() << " row " << i / shape.in << " column " << i % shape.in;
      }
    }
  }
}

// Rows with a single 1 give single values: if this fails, elements of x and of codes do not meet.
TEST_F(CudaFp8Test, SingleElementsMeetTheirCodes) {
  for (const Fp8Shape& shape : {Fp8Shape{144, 272, 272}, {144, 256, 128}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const QuantizedTestWeight weight =
          MakeQuantized(weights_only(), {shape.out, shape.in, dtype}, Fp8Format(shape.group_size));
      for (const int64_t rows : {8, 16, 32, 64, 128}) {
        for (int64_t first = 0; first < shape.in; first += rows) {
          CudaMatrix x(device(), dtype, rows, shape.in);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < shape.in; ++k) x.At(r, k) = k == first + r ? 1.0F : 0.0F;
          }
          x.Upload();
          CudaMatrix y(device(), DType::kF32, rows, shape.out);
          weights_only().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
          stream().Synchronize();
          y.Download();
          for (int64_t r = 0; r < std::min(rows, shape.in - first); ++r) {
            for (int64_t o = 0; o < shape.out; ++o) {
              ASSERT_EQ(y.At(r, o), weight.values[static_cast<size_t>(o * shape.in + first + r)])
                  << weight.Name() << ", " << rows << " rows: element " << first + r << ", output " << o;
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaFp8Test, WeightsOnlyMatchDoublePrecision) {
  for (const Fp8Shape& shape : shapes_) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const bool bias = shape.out % 3 == 0;
      const QuantizedTestWeight weight =
          MakeQuantized(weights_only(), {shape.out, shape.in, dtype}, Fp8Format(shape.group_size), bias);
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17, 33, 64, 100, 128, 129, 256, 300, 1024}) {
        const DType y_dtype = rows % 2 == 0 ? dtype : DType::kF32;
        CudaMatrix x(device(), dtype, rows, shape.in, rows % 3 * 8);
        x.Fill(random());
        CudaMatrix y(device(), y_dtype, rows, shape.out, rows % 4);
        weights_only().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
        stream().Synchronize();
        const double rounding = rows <= CodeRows{}.max ? 0.0 : Precision(dtype);
        ExpectQuantizedProduct(x, weight, y.Download(), y_dtype, rounding,
                               fmt::format("{} rows, y {}", rows, DTypeName(y_dtype)));
      }
    }
  }
}

// Tiles of 16 outputs and slices of 128 elements, whole and cut off; blocks with several tiles; warps with no
// slice, with one or more sets of x in registers, and with sets of which the last is short.
TEST_F(CudaFp8Test, FewRowsMatchDoublePrecision) {
  int64_t number = 0;
  for (const Fp8Shape& shape : {Fp8Shape{16, 16, 16},
                                {40, 144, 144},
                                {6500, 400, 400},
                                {8448, 256, 256},
                                {4400, 4608, 4608},
                                {32, 14336, 14336},
                                {30, 14352, 14352},
                                {40, 20480, 20480},
                                {8448, 384, 128},
                                {6500, 256, 128},
                                {48, 14336, 128},
                                {30, 14336, 3584},
                                {4400, 4608, 1536}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const QuantizedTestWeight weight = MakeQuantized(weights_only(), {shape.out, shape.in, dtype},
                                                       Fp8Format(shape.group_size), number % 2 == 0);
      for (const int64_t rows : {1, 2, 3, 5, 8}) {
        const DType y_dtype = ++number % 2 == 0 ? dtype : DType::kF32;
        CudaMatrix x(device(), dtype, rows, shape.in, rows % 3 * 8);
        x.Fill(random());
        CudaMatrix y(device(), y_dtype, rows, shape.out, rows % 4);
        weights_only().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
        stream().Synchronize();
        ExpectQuantizedProduct(x, weight, y.Download(), y_dtype, 0.0,
                               fmt::format("{} rows, y {}", rows, DTypeName(y_dtype)));
      }
    }
  }
}

// Of few rows bf16 becomes fp16 times a power of two: what is much smaller than the largest stays what it is.
TEST_F(CudaFp8Test, SmallElementsStayBesideLargeOnes) {
  constexpr int64_t kIn = 1024;
  constexpr int64_t kSmall = 128;  // of the same warp's slice
  QuantizedRows codes;
  codes.Resize(Fp8Format(kIn), 1, kIn);
  std::fill(codes.codes.begin(), codes.codes.end(), F32ToE4M3(0.0F));
  codes.codes[kSmall - 1] = F32ToE4M3(1.5F);
  codes.scales = {1.0F};
  const auto weight = weights_only().CreateQuantizedWeight({1, kIn, DType::kBF16}, codes.format).value();
  weight->LoadQuantizedRows(0, codes);
  for (const int exponent : {-80, -14, 0, 14, 100}) {
    constexpr int64_t kRows = 8;
    const int distances[kRows] = {0, 1, 8, 15, 16, 24, 30, 31};
    CudaMatrix x(device(), DType::kBF16, kRows, kIn);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < kIn; ++k) x.At(r, k) = 0.0F;
      x.At(r, 0) = std::ldexp(-1.9921875F, exponent);
      x.At(r, kSmall - 1) = std::ldexp(1.9921875F, exponent - distances[r]);
    }
    x.Upload();
    CudaMatrix y(device(), DType::kF32, kRows, 1);
    weights_only().Linear(stream(), {x.view(), weight.get(), y.view()});
    stream().Synchronize();
    y.Download();
    for (int64_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(y.At(r, 0), 1.5F * x.At(r, kSmall - 1)) << "2^" << exponent << ", row " << r;
    }
  }
}

TEST_F(CudaFp8Test, WhatIsNotFiniteStaysInItsRow) {
  const QuantizedTestWeight weight = MakeQuantized(weights_only(), {48, 4096, DType::kBF16}, Fp8Format(4096));
  CudaMatrix x(device(), DType::kBF16, 3, 4096);
  x.Fill(random());
  x.At(0, 77) = std::numeric_limits<float>::infinity();
  x.At(2, 4000) = std::numeric_limits<float>::quiet_NaN();
  x.Upload();
  CudaMatrix y(device(), DType::kBF16, 3, 48);
  weights_only().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
  stream().Synchronize();
  y.Download();
  for (int64_t o = 0; o < 48; ++o) {
    EXPECT_FALSE(std::isfinite(y.At(0, o))) << o;
    EXPECT_TRUE(std::isfinite(y.At(1, o))) << o;
    EXPECT_TRUE(std::isnan(y.At(2, o))) << o;
  }
}

// Shapes of Llama-3.1-8B: many blocks share outputs, or each has many slices.
TEST_F(CudaFp8Test, LargeShapes) {
  for (const Fp8Shape& shape : {Fp8Shape{6144, 4096, 4096}, {1024, 14336, 14336}, {4096, 4096, 128}}) {
    const QuantizedTestWeight weight =
        MakeQuantized(weights_only(), {shape.out, shape.in, DType::kBF16}, Fp8Format(shape.group_size));
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 200}) {
      CudaMatrix x(device(), DType::kBF16, rows, shape.in);
      x.Fill(random());
      CudaMatrix y(device(), DType::kF32, rows, shape.out);
      weights_only().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
      stream().Synchronize();
      ExpectQuantizedProduct(x, weight, y.Download(), DType::kF32, RoundingOfWeights(rows),
                             fmt::format("{} rows", rows));
    }
  }
}

TEST_F(CudaFp8Test, RowsBecomeTheNearestCodes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t cols : {16, 80, 576, 4096, 8192, 14336, 28672, 65536}) {
      constexpr int64_t kRows = 5;
      CudaMatrix x(device(), dtype, kRows, cols, 8);
      x.Fill(random());
      for (int64_t k = 0; k < cols; ++k) x.At(3, k) = 0.0F;  // of a row of zeros nothing must be divided
      x.At(4, cols - 1) = 3000.0F;                           // others become subnormal codes
      x.Upload();
      const CudaArray<uint8_t> codes(device(), std::vector<uint8_t>(static_cast<size_t>(kRows * cols), 0xff));
      const CudaArray<float> scales(device(), std::vector<float>(kRows, -1.0F));
      LaunchQuantizeToFp8(cuda_stream(), x.view(), codes.data(), scales.data());
      std::vector<uint8_t> found(static_cast<size_t>(kRows * cols));
      std::vector<float> found_scales(kRows);
      stream().Copy(found.data(), codes.data(), found.size());
      stream().Copy(found_scales.data(), scales.data(), found_scales.size() * sizeof(float));
      stream().Synchronize();
      for (int64_t r = 0; r < kRows; ++r) {
        float largest = 0.0F;
        for (int64_t k = 0; k < cols; ++k) largest = std::max(largest, std::abs(x.At(r, k)));
        EXPECT_EQ(found_scales[static_cast<size_t>(r)], largest / kLargestE4M3);
        const float inverse = largest > 0.0F ? kLargestE4M3 / largest : 0.0F;
        for (int64_t k = 0; k < cols; ++k) {
          ASSERT_EQ(found[static_cast<size_t>(r * cols + k)], F32ToE4M3(x.At(r, k) * inverse))
              << DTypeName(dtype) << " [" << r << ", " << k << "] of " << cols << ": " << x.At(r, k);
        }
      }
    }
  }
}

// With scales by cuBLASLt or by a kernel of its own, whichever it has: both wherever it has both.
TEST_F(CudaFp8Test, ProductsOfFp8MatchDoublePrecision) {
  if (!HasFp8Products()) GTEST_SKIP() << "needs compute capability 8.9";
  LinearRunner runner(&device());
  runner.PrepareWorkspace(cuda_stream());
  runner.PrepareFp8(cuda_stream());
  int num_with_cublaslt_scales = 0;
  for (const Fp8Shape& shape :
       {Fp8Shape{576, 576}, {960, 1536}, {96, 80}, {16, 16}, {6144, 4096}, {1024, 14336}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const bool bias = shape.out % 3 == 0;
      const QuantizedTestWeight weight =
          MakeQuantized(ops(), {shape.out, shape.in, dtype}, Fp8Format(shape.in), bias);
      const auto& fp8 = dynamic_cast<const CudaFp8Weight&>(*weight.weight);
      ASSERT_TRUE(fp8.HasFp8Products());
      const CudaLinearWeight linear = fp8.AsLinear();
      for (const int64_t rows : {1, 16, 65, 100, 128, 300, 2048}) {
        const DType y_dtype = rows % 5 == 0 ? DType::kF32 : dtype;
        CudaMatrix x(device(), dtype, rows, shape.in, rows % 3 * 8);
        x.Fill(random());
        CudaMatrix y(device(), y_dtype, rows, shape.out);
        const LinearArgs args = {.x = x.view(), .weight = &linear, .y = y.view()};
        RoundToFp8(&x);
        for (const bool separate : {false, true}) {
          LinearAlgorithm algorithm;
          algorithm.separate_scales = separate;
          std::vector<cublasLtMatmulAlgo_t> choices;
          for (const bool separate_bias : {false, true}) {
            algorithm.separate_bias = separate_bias;
            choices = runner.Product(args, algorithm).Heuristics(kLinearWorkspaceBytes, 1);
            if (!choices.empty()) break;
          }
          if (!separate && !choices.empty()) ++num_with_cublaslt_scales;
          if (choices.empty()) {
            EXPECT_FALSE(separate) << "cuBLASLt has no product of FP8 at all: " << weight.Name() << ", "
                                   << rows << " rows";
            continue;
          }
          algorithm.lt = choices.front();
          ASSERT_TRUE(runner.Run(cuda_stream(), args, algorithm));
          stream().Synchronize();
          // A product without scales is rounded to y before it has them.
          const double rounding = kSumPrecision + (separate ? Precision(y_dtype) : 0.0);
          ExpectQuantizedProduct(x, weight, y.Download(), y_dtype, rounding,
                                 fmt::format("{} rows, y {}, scales {}", rows, DTypeName(y_dtype),
                                             separate ? "apart" : "by cuBLASLt"));
        }
      }
    }
  }
  EXPECT_TRUE(num_with_cublaslt_scales > 0 || cuda_stream().target().compute_capability != 90);
}

// As the engine calls it: few rows keep their activations, many do not.
TEST_F(CudaFp8Test, FewRowsAreNotRounded) {
  if (!HasFp8Products()) GTEST_SKIP() << "needs compute capability 8.9";
  const QuantizedTestWeight weight = MakeQuantized(ops(), {1024, 2048, DType::kBF16}, Fp8Format(2048), true);
  for (const int64_t rows : {int64_t{1}, int64_t{17}, kFewFp8Rows, kFewFp8Rows + 1, int64_t{500}}) {
    CudaMatrix x(device(), DType::kBF16, rows, 2048);
    x.Fill(random());
    CudaMatrix y(device(), DType::kBF16, rows, 1024);
    ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
    stream().Synchronize();
    if (rows > kFewFp8Rows) RoundToFp8(&x);
    ExpectQuantizedProduct(x, weight, y.Download(), DType::kBF16, rows > kFewFp8Rows ? kSumPrecision : 0.0,
                           fmt::format("{} rows", rows));
  }
  // Columns of y that cuBLASLt cannot write: nothing is rounded, and nothing fails.
  CudaMatrix x(device(), DType::kBF16, 100, 2048);
  x.Fill(random());
  CudaMatrix y(device(), DType::kBF16, 100, 1024, 3);
  ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
  stream().Synchronize();
  y.Download();
  EXPECT_TRUE(std::all_of(y.Row(0), y.Row(0) + 100 * 1024, [](float value) { return std::isfinite(value); }));
  // Rows of x that are not aligned take the way of other quantized weights.
  CudaMatrix odd_x(device(), DType::kBF16, 100, 2048, 3);
  odd_x.Fill(random());
  CudaMatrix odd_y(device(), DType::kBF16, 100, 1024);
  ops().Linear(stream(), {odd_x.view(), weight.weight.get(), odd_y.view()});
  stream().Synchronize();
  ExpectQuantizedProduct(odd_x, weight, odd_y.Download(), DType::kBF16, 0x1p-8, "rows that are not aligned");
}

// More rows than there is memory for at once.
TEST_F(CudaFp8Test, ManyRowsGoInPieces) {
  if (!HasFp8Products()) GTEST_SKIP() << "needs compute capability 8.9";
  constexpr int64_t kIn = 8192;
  const int64_t rows = 2 * MaxFp8Rows(kIn) + 100;
  const QuantizedTestWeight weight = MakeQuantized(ops(), {16, kIn, DType::kBF16}, Fp8Format(kIn));
  CudaMatrix x(device(), DType::kBF16, rows, kIn);
  x.Fill(random());
  CudaMatrix y(device(), DType::kF32, rows, 16);
  ops().Linear(stream(), {x.view(), weight.weight.get(), y.view()});
  stream().Synchronize();
  RoundToFp8(&x);
  ExpectQuantizedProduct(x, weight, y.Download(), DType::kF32, kSumPrecision, fmt::format("{} rows", rows));
}

TEST_F(CudaFp8Test, RowsDoNotDependOnEachOther) {
  for (const int64_t rows : {5, 64, 100, 1000}) {
    const QuantizedTestWeight weight = MakeQuantized(ops(), {304, 1152, DType::kBF16}, Fp8Format(1152));
    CudaMatrix x(device(), DType::kBF16, rows, 1152);
    x.Fill(random());
    CudaMatrix first(device(), DType::kF32, rows, 304);
    ops().Linear(stream(), {x.view(), weight.weight.get(), first.view()});
    stream().Synchronize();
    first.Download();
    const std::vector<float> kept(x.Row(rows / 2), x.Row(rows / 2) + 1152);
    x.Fill(random(), 100.0F);
    std::copy(kept.begin(), kept.end(), &x.At(rows / 2, 0));
    x.Upload();
    CudaMatrix second(device(), DType::kF32, rows, 304);
    ops().Linear(stream(), {x.view(), weight.weight.get(), second.view()});
    stream().Synchronize();
    second.Download();
    EXPECT_TRUE(std::equal(first.Row(rows / 2), first.Row(rows / 2) + 304, second.Row(rows / 2)))
        << rows << " rows";
  }
}

TEST_F(CudaFp8Test, NothingIsWrittenBesideY) {
  const QuantizedTestWeight weight = MakeQuantized(ops(), {144, 128, DType::kBF16}, Fp8Format(128));
  for (const int64_t rows : {1, 9, 20, 40, 100, 300}) {
    CudaMatrix x(device(), DType::kBF16, rows, 128);
    x.Fill(random());
    // A row and 8 columns more than the result.
    CudaMatrix y(device(), DType::kF32, rows + 1, 152);
    ops().Linear(stream(), {x.view(), weight.weight.get(), y.view().Rows(0, rows).Columns(0, 144)});
    stream().Synchronize();
    y.Download();
    for (int64_t r = 0; r <= rows; ++r) {
      for (int64_t c = r == rows ? 0 : 144; c < 152; ++c) {
        ASSERT_TRUE(std::isnan(y.At(r, c))) << rows << " rows: row " << r << " column " << c;
      }
    }
  }
}

TEST_F(CudaFp8Test, GateUpIsAProductAndSilu) {
  for (const int64_t group_size : {128, 384}) {
    // With 2304, blocks of few rows have two tiles.
    for (const int64_t mlp : {int64_t{96}, int64_t{104}, int64_t{100}, int64_t{2304}}) {
      const DType dtype = mlp == 96 ? DType::kF16 : DType::kBF16;
      const QuantizedWeightShape shape = {2 * mlp, 384, dtype, true};
      const QuantizedTestWeight weight = MakeQuantized(ops(), shape, Fp8Format(group_size), mlp == 104);
      for (const int64_t rows : {1, 3, 8, 20, 100, 300}) {
        CudaMatrix x(device(), dtype, rows, 384);
        x.Fill(random());
        CudaMatrix scratch(device(), dtype, rows, 2 * mlp);
        CudaMatrix y(device(), dtype, rows, mlp);
        ops().GateUp(stream(), {x.view(), weight.weight.get(), scratch.view(), y.view()});
        stream().Synchronize();
        y.Download();
        const auto product = [&](int64_t row, int64_t o) {
          double sum = weight.bias.empty() ? 0.0 : double{weight.bias[static_cast<size_t>(o)]};
          for (int64_t k = 0; k < 384; ++k) {
            sum += double{x.At(row, k)} * double{weight.values[static_cast<size_t>(o * 384 + k)]};
          }
          return sum;
        };
        double difference = 0.0;
        double norm = 0.0;
        for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
          for (int64_t j = 0; j < mlp; ++j) {
            const double gate = product(row, j);
            const double want = gate / (1.0 + std::exp(-gate)) * product(row, mlp + j);
            difference += (y.At(row, j) - want) * (y.At(row, j) - want);
            norm += want * want;
          }
        }
        // x of many rows may be rounded to FP8.
        EXPECT_LT(std::sqrt(difference / norm), rows <= kFewFp8Rows ? 0.01 : 0.1)
            << weight.Name() << ", " << rows << " rows";
        if (rows > kFewFp8Rows) continue;
        // Few rows take one kernel, which leaves the scratch memory as it was.
        scratch.Download();
        const bool is_untouched = std::all_of(scratch.Row(0), scratch.Row(0) + rows * 2 * mlp,
                                              [](float value) { return std::isnan(value); });
        const Fp8View& view = dynamic_cast<const CudaFp8Weight&>(*weight.weight).view();
        EXPECT_EQ(is_untouched, Fp8GateUpSupports(cuda_stream().target(), x.view(), view))
            << weight.Name() << ", " << rows << " rows";
      }
    }
  }
}

// Kernels start before their predecessors have ended, and share memory: results are those of products that
// wait for each other.
TEST_F(CudaFp8Test, ChainOfProductsInAGraph) {
  constexpr int64_t kFeatures = 2048;
  constexpr int kLayers = 12;
  for (const auto& [rows, group_size] : {std::pair<int64_t, int64_t>{1, kFeatures},
                                         {5, 128},
                                         {8, kFeatures},
                                         {16, kFeatures},
                                         {40, 128},
                                         {100, kFeatures},
                                         {300, kFeatures},
                                         {300, 128}}) {
    std::vector<std::unique_ptr<QuantizedLinearWeight>> weights;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights.push_back(
          ops().CreateQuantizedWeight({kFeatures, kFeatures, DType::kBF16}, Fp8Format(group_size)).value());
      weights.back()->FillRandom({static_cast<uint64_t>(layer), std::sqrt(3.0F / kFeatures)});
    }
    CudaMatrix ping(device(), DType::kBF16, rows, kFeatures);
    CudaMatrix pong(device(), DType::kBF16, rows, kFeatures);
    const auto enqueue = [&](int layer) {
      ops().Linear(stream(),
                   {layer % 2 == 0 ? ping.view() : pong.view(), weights[static_cast<size_t>(layer)].get(),
                    layer % 2 == 0 ? pong.view() : ping.view()});
    };
    ping.Fill(random());
    for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
    stream().Synchronize();
    stream().BeginCapture();
    for (int layer = 0; layer < kLayers; ++layer) enqueue(layer);
    const std::unique_ptr<Graph> graph = stream().EndCapture();
    for (int round = 0; round < 5; ++round) {
      ping.Fill(random());
      const std::vector<float> start(ping.Row(0), ping.Row(0) + rows * kFeatures);
      for (int layer = 0; layer < kLayers; ++layer) {
        enqueue(layer);
        stream().Synchronize();
      }
      ping.Download();
      const std::vector<float> want(ping.Row(0), ping.Row(0) + rows * kFeatures);
      std::copy(start.begin(), start.end(), &ping.At(0, 0));
      ping.Upload();
      stream().Launch(*graph);
      stream().Synchronize();
      ping.Download();
      const std::vector<float> got(ping.Row(0), ping.Row(0) + rows * kFeatures);
      const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin());
      ASSERT_TRUE(g == got.end()) << rows << " rows, round " << round << ", row "
                                  << (g - got.begin()) / kFeatures << " column "
                                  << (g - got.begin()) % kFeatures << ": " << *g << ", one by one " << *w;
    }
  }
}

TEST_F(CudaFp8Test, WorksInASlice) {
  auto sliced = CreateCudaDevice({.sm_limit = 8});
  if (!sliced.ok()) GTEST_SKIP() << sliced.error().message;
  const auto slice_ops =
      CreateCudaOps(sliced->get(), {.tuning_folder = "", .tune_linear = false, .fp8_products = false});
  const auto slice_stream = (*sliced)->CreateStream(StreamKind::kCompute, "slice");
  const QuantizedTestWeight weight = MakeQuantized(*slice_ops, {700, 2048, DType::kBF16}, Fp8Format(2048));
  for (const int64_t rows : {1, 8, 12, 60, 200}) {
    CudaMatrix x(**sliced, DType::kBF16, rows, 2048);
    x.Fill(random());
    CudaMatrix y(**sliced, DType::kF32, rows, 700);
    slice_ops->Linear(*slice_stream, {x.view(), weight.weight.get(), y.view()});
    slice_stream->Synchronize();
    ExpectQuantizedProduct(x, weight, y.Download(), DType::kF32, RoundingOfWeights(rows),
                           fmt::format("{} rows in a slice", rows));
  }
}

TEST_F(CudaFp8Test, RandomWeightsAreThoseOfTheHost) {
  constexpr int64_t kOut = 208;
  constexpr int64_t kIn = 384;
  for (const int64_t group_size : {int64_t{128}, kIn}) {
    for (const bool is_gate_up : {false, true}) {
      const WeightFormat format = Fp8Format(group_size);
      const auto weight = ops().CreateQuantizedWeight({kOut, kIn, DType::kBF16, is_gate_up}, format).value();
      weight->FillRandom({99, 0.035F});
      QuantizedRows rows;
      HashedRows(99, 0.035F, 0, kOut, kIn, format, &rows);
      std::vector<float> want(static_cast<size_t>(kOut * kIn));
      DequantizeRows(rows, want.data());
      std::vector<int32_t> places(kOut);
      for (int32_t row = 0; row < kOut; ++row) {
        places[static_cast<size_t>(row)] =
            is_gate_up ? static_cast<int32_t>(GateUpOrder(kOut / 2).PlaceOf(row)) : row;
      }
      const CudaArray<int32_t> ids(device(), places);
      CudaMatrix values(device(), DType::kF32, kOut, kIn);
      ops().Embedding(stream(), {.ids = ids.data(), .out = values.view(), .quantized = weight.get()});
      stream().Synchronize();
      values.Download();
      for (int64_t i = 0; i < kOut * kIn; ++i) {
        ASSERT_EQ(values.At(i / kIn, i % kIn), want[static_cast<size_t>(i)])
            << DescribeWeightFormat(format) << " row " << i / kIn << " column " << i % kIn;
      }
    }
  }
}

// Measured choices are of the own kernel and of cuBLASLt's; they are kept, and give the right products.
TEST_F(CudaFp8Test, TunedProducts) {
  if (!HasFp8Products()) GTEST_SKIP() << "needs compute capability 8.9";
  const TemporaryFolder folder("fp8-tuning");
  const CudaOpsOptions options = {.tuning_folder = folder.path(), .tune_linear = true, .hot_choice = false};
  const int64_t row_counts[] = {1, 8, 64, 128, 512, 2048};
  for (const bool again : {false, true}) {
    const auto tuned = CreateCudaOps(&device(), options);
    const QuantizedTestWeight weight =
        MakeQuantized(*tuned, {1024, 2048, DType::kBF16}, Fp8Format(2048), true);
    const LinearWeight* weights[] = {weight.weight.get()};
    tuned->TuneLinear(stream(), {.weights = weights, .y_dtype = DType::kBF16, .row_counts = row_counts});
    ASSERT_EQ(folder.files().size(), 1U);
    const nlohmann::json kept = nlohmann::json::parse(std::ifstream(folder.files()[0]));
    ASSERT_EQ(kept["shapes"].size(), 1U) << again;
    EXPECT_EQ(kept["shapes"][0]["dtype"], "fp8_e4m3");
    std::set<std::string> methods;
    for (const nlohmann::json& entry : kept["shapes"][0]["rows"]) {
      const auto method = entry["method"].get<std::string>();
      EXPECT_TRUE(method == "fp8-codes" || method == "cublaslt") << method;
      EXPECT_TRUE(entry["rows"] != 2048 || method == "cublaslt") << method;
      std::printf("fp8 [1024, 2048], %d rows: %s, %.1f us\n", entry["rows"].get<int>(), method.c_str(),
                  entry["us"].get<double>());
    }
    for (const int64_t rows : {1, 8, 100, 512, 1500}) {
      CudaMatrix x(device(), DType::kBF16, rows, 2048);
      x.Fill(random());
      CudaMatrix y(device(), DType::kBF16, rows, 1024);
      tuned->Linear(stream(), {x.view(), weight.weight.get(), y.view()});
      stream().Synchronize();
      y.Download();
      std::vector<double> want(1024);
      for (int64_t o = 0; o < 1024; ++o) {
        double sum = weight.bias[static_cast<size_t>(o)];
        for (int64_t k = 0; k < 2048; ++k)
          sum += double{x.At(rows - 1, k)} * double{weight.values[static_cast<size_t>(o * 2048 + k)]};
        want[static_cast<size_t>(o)] = sum;
      }
      EXPECT_LT(RelativeError(y.Row(rows - 1), want.data(), 1024), 0.06) << rows << " rows";
    }
  }
}

TEST_F(CudaFp8Test, RefusesWhatItCannotMultiply) {
  const auto keeping = CreateCudaOps(&device(), {.tune_linear = false, .keep_quantized = true});
  const auto refused = [&](const QuantizedWeightShape& shape, const WeightFormat& format) {
    EXPECT_FALSE(keeping->KeepsQuantized(format, shape.in_features, shape.dtype));
    const auto weight = keeping->CreateQuantizedWeight(shape, format);
    return weight.ok() ? ErrorCode::kIo : weight.error().code;
  };
  EXPECT_EQ(refused({64, 128, DType::kF32}, Fp8Format(128)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 128, DType::kBF16}, Fp8Format(64)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 24, DType::kBF16}, Fp8Format(24)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 320, DType::kBF16}, Fp8Format(128)), ErrorCode::kUnsupported);
  EXPECT_TRUE(keeping->KeepsQuantized(Fp8Format(576), 576, DType::kBF16));
  EXPECT_TRUE(keeping->KeepsQuantized(Fp8Format(128), 4096, DType::kF16));
}

}  // namespace
}  // namespace tandem
