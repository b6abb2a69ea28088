#include <gtest/gtest.h>

#include <utility>

#include "ops/host/linear/linear_onednn.h"
#include "ops/host/linear/linear_weight.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

struct LinearCase {
  std::unique_ptr<LinearWeight> weight;
  TestMatrix values;  // [out, in]
  std::vector<float> bias;
};

LinearCase MakeCase(Ops& ops, int64_t out_features, int64_t in_features, DType dtype, bool with_bias,
                    std::mt19937& random) {
  LinearCase result{ops.CreateLinearWeight(out_features, in_features, dtype).value(),
                    TestMatrix(dtype, out_features, in_features),
                    {}};
  result.values.Fill(random, 0.5F);
  // In uneven pieces, as a loader that fuses matrices does.
  const int64_t first = out_features / 3;
  result.weight->LoadRows(0, first, result.values.view().RowData(0));
  result.weight->LoadRows(first, out_features - first, result.values.view().RowData(first));
  if (with_bias) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < out_features; ++i) result.bias.push_back(normal(random));
    result.weight->LoadBias(0, out_features, result.bias.data());
  }
  return result;
}

void RunLinear(OpTestBench& bench, const TestMatrix& x, const LinearCase& c, const TestMatrix& y) {
  bench.ops().Linear(bench.stream(), {x.view(), c.weight.get(), y.view()});
  bench.Synchronize();
}

void ExpectProduct(const TestMatrix& x, const LinearCase& c, const TestMatrix& y) {
  for (int64_t r = 0; r < x.view().rows; ++r) {
    for (int64_t n = 0; n < y.view().cols; ++n) {
      double sum = c.bias.empty() ? 0.0 : c.bias[static_cast<size_t>(n)];
      double magnitude = std::abs(sum);
      for (int64_t k = 0; k < x.view().cols; ++k) {
        const double product = static_cast<double>(x.Get(r, k)) * c.values.Get(n, k);
        sum += product;
        magnitude += std::abs(product);
      }
      const double tolerance =
          magnitude * 2e-6 + (y.view().dtype == DType::kBF16 ? std::abs(sum) * 0x1p-8 : 0.0) + 1e-6;
      ASSERT_NEAR(y.Get(r, n), sum, tolerance) << "row " << r << " column " << n;
    }
  }
}

class LinearTest : public testing::TestWithParam<CpuIsa> {};

TEST_P(LinearTest, MatchesReference) {
  std::mt19937 random(1);
  OpTestBench bench(GetParam());
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{64, 64},  {96, 48},   {1, 1}, {33, 7},
                                                           {130, 65}, {200, 129}, {64, 3}};
  for (const auto& [out_features, in_features] : shapes) {
    for (const auto& [dtype, y_dtype] :
         {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}}) {
      for (const bool with_bias : {false, true}) {
        const LinearCase c = MakeCase(bench.ops(), out_features, in_features, dtype, with_bias, random);
        for (const int64_t rows : {1, 2, 5, 6, 13}) {
          TestMatrix x(dtype, rows, in_features, 3);
          x.Fill(random);
          const TestMatrix y(y_dtype, rows, out_features, 5);
          RunLinear(bench, x, c, y);
          SCOPED_TRACE(testing::Message() << out_features << "x" << in_features << " rows " << rows << " "
                                          << DTypeName(dtype) << " to " << DTypeName(y_dtype));
          ExpectProduct(x, c, y);
          for (int64_t r = 0; r + 1 < rows; ++r) {  // nothing is written between rows
            EXPECT_TRUE(std::isnan(y.Get(r, out_features)));
          }
        }
      }
    }
  }
}

// More k than one block of the kernel, where running sums are stored between blocks.
TEST_P(LinearTest, DeepProductMatchesReference) {
  std::mt19937 random(2);
  OpTestBench bench(GetParam());
  for (const auto& [dtype, depth] : {std::pair{DType::kF32, int64_t{1100}}, {DType::kBF16, int64_t{2101}}}) {
    const LinearCase c = MakeCase(bench.ops(), 40, depth, dtype, true, random);
    TestMatrix x(dtype, 9, depth);
    x.Fill(random);
    const TestMatrix y(DType::kF32, 9, 40);
    RunLinear(bench, x, c, y);
    ExpectProduct(x, c, y);
  }
}

TEST_P(LinearTest, RowsDoNotDependOnOtherRows) {
  std::mt19937 random(3);
  constexpr int64_t kMaxRows = 133;
  for (const auto& [dtype, depth] : {std::pair{DType::kF32, int64_t{1060}}, {DType::kBF16, int64_t{2090}}}) {
    OpTestBench first(GetParam(), 1);
    const LinearCase c = MakeCase(first.ops(), 160, depth, dtype, true, random);
    TestMatrix x(dtype, kMaxRows, depth);
    x.Fill(random);
    const TestMatrix expected(DType::kF32, kMaxRows, 160);
    for (int64_t r = 0; r < kMaxRows; ++r) {
      first.ops().Linear(first.stream(), {x.view().Rows(r, 1), c.weight.get(), expected.view().Rows(r, 1)});
    }
    first.Synchronize();
    for (const int num_threads : {1, 2, 3}) {
      OpTestBench bench(GetParam(), num_threads);
      for (const int64_t rows : {2, 7, 16, 33, 133}) {
        const int64_t begin = (kMaxRows - rows) / 2;
        const TestMatrix y(DType::kF32, rows, 160);
        bench.ops().Linear(bench.stream(), {x.view().Rows(begin, rows), c.weight.get(), y.view()});
        bench.Synchronize();
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(y.RowEquals(r, expected, begin + r))
              << DTypeName(dtype) << " row " << r << " of " << rows << ", " << num_threads << " threads";
        }
      }
    }
  }
}

// Fetches are hints: whatever a trial chooses, the bits are the same.
TEST_P(LinearTest, SameBitsHoweverItFetches) {
  std::mt19937 random(6);
  constexpr int64_t kRows = 20;
  for (const auto& [dtype, depth] : {std::pair{DType::kF32, int64_t{1060}}, {DType::kBF16, int64_t{2090}}}) {
    OpTestBench bench(GetParam());
    const LinearCase c = MakeCase(bench.ops(), 160, depth, dtype, true, random);
    TestMatrix x(dtype, kRows, depth);
    x.Fill(random);
    const TestMatrix expected(DType::kF32, kRows, 160);
    RunLinear(bench, x, c, expected);
    for (const FetchLevel level : kFetchLevels) {
      for (const int64_t distance_bytes : {0, 1024, 8192}) {
        bench.ops().UseFetches({}, {.level = level, .distance_bytes = distance_bytes});
        for (const int64_t rows : {int64_t{1}, int64_t{4}, kRows}) {
          const TestMatrix y(DType::kF32, rows, 160);
          bench.ops().Linear(bench.stream(), {x.view().Rows(0, rows), c.weight.get(), y.view()});
          bench.Synchronize();
          for (int64_t r = 0; r < rows; ++r)
            ASSERT_TRUE(y.RowEquals(r, expected, r)) << FetchLevelName(level) << ' ' << distance_bytes;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LinearTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

TEST(LinearOneDnnTest, MatchesReference) {
  std::mt19937 random(4);
  OpTestBench bench(BestCpuIsa(), 2, OneDnnUse::kAlways);
  std::vector<DType> dtypes = {DType::kF32};
  if (BestCpuIsa() >= CpuIsa::kAvx512Bf16)
    dtypes.push_back(DType::kBF16);  // oneDNN has no bf16 below AVX-512
  for (const DType dtype : dtypes) {
    for (const auto& [out_features, in_features] :
         {std::pair<int64_t, int64_t>{64, 64}, {200, 129}, {33, 40}}) {
      const LinearCase c =
          MakeCase(bench.ops(), out_features, in_features, dtype, out_features == 200, random);
      for (const int64_t rows : {1, 40}) {
        TestMatrix x(dtype, rows, in_features);
        x.Fill(random);
        const TestMatrix y(dtype, rows, out_features, 8);
        RunLinear(bench, x, c, y);
        SCOPED_TRACE(testing::Message() << out_features << "x" << in_features << " rows " << rows);
        ExpectProduct(x, c, y);
      }
    }
  }
}

// With its reference implementation oneDNN would be right too, and hundreds of times too slow.
TEST(LinearOneDnnTest, HasAFastImplementation) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (BestCpuIsa() < CpuIsa::kAvx512Bf16) continue;
    WeightArena arena;
    const auto weight = HostLinearWeight::Create(192, 128, dtype, &arena).value();
    TestMatrix x(dtype, 40, 128, 5);
    std::mt19937 random(5);
    x.Fill(random);
    const TestMatrix y(DType::kF32, 40, 192, 7);
    OneDnnProduct product;
    product.x = x.view().data;
    product.x_stride = x.view().row_stride;
    product.panels = static_cast<const HostLinearWeight&>(*weight).panels();
    product.y = y.view().data;
    product.y_stride = y.view().row_stride;
    product.rows = 40;
    product.cols = 192;
    product.depth = 128;
    product.dtype = dtype;
    EXPECT_TRUE(RunOneDnnProduct(product)) << DTypeName(dtype);
    EXPECT_EQ(y.Get(39, 191), 0.0F);  // the weight is still zero
  }
}

TEST(GateUpTest, IsAProductAndSiluMul) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kMlp = 21;
  constexpr int64_t kIn = 40;
  std::mt19937 random(5);
  OpTestBench bench;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto weight = bench.ops().CreateGateUpWeight(kMlp, kIn, dtype).value();
    TestMatrix values(dtype, 2 * kMlp, kIn);
    values.Fill(random, 0.5F);
    weight->LoadRows(0, 2 * kMlp, values.view().data);
    TestMatrix x(dtype, kRows, kIn, 3);
    x.Fill(random);
    const TestMatrix scratch(DType::kF32, kRows, 2 * kMlp);
    const TestMatrix y(dtype, kRows, kMlp, 2);
    bench.ops().GateUp(bench.stream(), {x.view(), weight.get(), scratch.view(), y.view()});
    bench.Synchronize();
    const auto dot = [&](int64_t row, int64_t n) {
      double sum = 0.0;
      for (int64_t k = 0; k < kIn; ++k) sum += static_cast<double>(x.Get(row, k)) * values.Get(n, k);
      return sum;
    };
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < kMlp; ++j) {
        const double gate = dot(r, j);
        const double want = gate / (1.0 + std::exp(-gate)) * dot(r, kMlp + j);
        const double tolerance = (dtype == DType::kBF16 ? 0x1p-8 : 0.0) * std::abs(want) + 1e-4;
        EXPECT_NEAR(y.Get(r, j), want, tolerance) << DTypeName(dtype) << ": row " << r << " column " << j;
      }
    }
  }
}

TEST(LinearWeightTest, RejectsWhatItCannotMultiply) {
  const auto ops = CreateHostOps();
  const auto half = ops->CreateLinearWeight(64, 64, DType::kF16);
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.error().code, ErrorCode::kUnsupported);
  const auto huge = ops->CreateLinearWeight(int64_t{1} << 30, int64_t{1} << 20, DType::kF32);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
