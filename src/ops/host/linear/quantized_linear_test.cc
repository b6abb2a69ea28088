#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ops/host/linear/quantized_weight.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

const std::vector<WeightFormat>& Formats() {
  static const std::vector<WeightFormat> formats = {Int4Format(32, false),
                                                    Int4Format(32, true),
                                                    Int4Format(16, true),
                                                    Int4Format(64, false),
                                                    Int8Format(32, false),
                                                    Int8Format(32, true),
                                                    Int8Format(16, false),
                                                    Int8Format(96, true),
                                                    WithZeroPoints(Int4Format(32, true)),
                                                    WithZeroPoints(Int8Format(96, true)),
                                                    InBlocksOf(96, Int4Format(32, true)),
                                                    InBlocksOf(96, Int8Format(16, false)),
                                                    InBlocksOf(192, Int8Format(32, true)),
                                                    Fp8Format(16),
                                                    Fp8Format(64),
                                                    Fp8Format(96),
                                                    Fp8Format(192)};
  return formats;
}

// Rows with codes, scales and minimums that fp16 holds (scales of FP8: that only fp32 holds), of magnitudes
// that differ from row to row.
QuantizedRows RandomRows(const WeightFormat& format, int64_t num_rows, int64_t cols, std::mt19937& random) {
  QuantizedRows rows;
  rows.Resize(format, num_rows, cols);
  std::uniform_int_distribution<int> codes(0, (1 << format.bits()) - 1);
  for (uint8_t& code : rows.codes) {
    code = static_cast<uint8_t>(codes(random));
    if (!format.has_integers() && (code & 0x7fU) == 0x7fU) --code;  // NaN
  }
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  const auto half = [&](float size) { return F16ToF32(F32ToF16(size * uniform(random))); };
  const auto size_of = [](size_t i, int64_t numbers_a_row) {
    return std::ldexp(1.0F, static_cast<int>(i / static_cast<size_t>(numbers_a_row) % 5) - 6);
  };
  for (size_t i = 0; i < rows.scale_units.size(); ++i) {
    const float size = size_of(i, rows.num_blocks()) / 128.0F;
    rows.scale_units[i] = half(size);
    if (format.has_minimum) rows.minimum_units[i] = half(8.0F * size);
  }
  std::uniform_int_distribution<int> multiples(-128, 127);
  for (size_t i = 0; i < rows.scales.size(); ++i) {
    const float size = size_of(i, rows.num_groups());
    rows.scales[i] = format.has_integers() ? half(size) : size * uniform(random);
    if (format.has_minimum) rows.minimums[i] = half(8.0F * size);
    if (format.has_zero_points) rows.minimums[i] = rows.scales[i] * static_cast<float>(-codes(random));
    if (format.block_size == 0) continue;
    const size_t block = i * static_cast<size_t>(format.group_size) / static_cast<size_t>(format.block_size);
    rows.scales[i] = rows.scale_units[block] * static_cast<float>(multiples(random));
    if (format.has_minimum)
      rows.minimums[i] = rows.minimum_units[block] * static_cast<float>(multiples(random));
  }
  return rows;
}

struct QuantizedCase {
  std::unique_ptr<QuantizedLinearWeight> weight;
  TestMatrix values;  // [out, in] fp32, dequantized
  std::vector<float> bias;
};

QuantizedCase MakeCase(Ops& ops, const WeightFormat& format, int64_t out_features, int64_t in_features,
                       DType dtype, bool with_bias, std::mt19937& random) {
  QuantizedCase result{ops.CreateQuantizedWeight({out_features, in_features, dtype}, format).value(),
                       TestMatrix(DType::kF32, out_features, in_features),
                       {}};
  // In uneven pieces, as a loader that fuses matrices does.
  for (const auto& [begin, end] :
       {std::pair{int64_t{0}, out_features / 3}, {out_features / 3, out_features}}) {
    const QuantizedRows rows = RandomRows(format, end - begin, in_features, random);
    result.weight->LoadQuantizedRows(begin, rows);
    DequantizeRows(rows, static_cast<float*>(result.values.view().RowData(begin)));
  }
  if (with_bias) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < out_features; ++i) result.bias.push_back(normal(random));
    result.weight->LoadBias(0, out_features, result.bias.data());
  }
  return result;
}

void RunLinear(OpTestBench& bench, const MatrixView& x, const LinearWeight& weight, const MatrixView& y) {
  bench.ops().Linear(bench.stream(), {x, &weight, y});
  bench.Synchronize();
}

constexpr double kBf16Rounding = 0x1p-8;

// weight_rounding: relative, of the weights.
void ExpectProduct(const TestMatrix& x, const QuantizedCase& c, const TestMatrix& y, double weight_rounding) {
  for (int64_t r = 0; r < x.view().rows; ++r) {
    for (int64_t n = 0; n < y.view().cols; ++n) {
      double sum = c.bias.empty() ? 0.0 : c.bias[static_cast<size_t>(n)];
      double magnitude = std::abs(sum);
      double largest = 0;  // sums of codes are not yet moved by their zero or minimum
      for (int64_t k = 0; k < x.view().cols; ++k) {
        const double product = static_cast<double>(x.Get(r, k)) * c.values.Get(n, k);
        sum += product;
        magnitude += std::abs(product);
        largest = std::max(largest, std::abs(product));
      }
      const double tolerance = magnitude * (2e-6 + weight_rounding) + 1e-6 + 1e-5 * largest +
                               (y.view().dtype == DType::kBF16 ? std::abs(sum) * 0x1p-8 : 0.0);
      ASSERT_NEAR(y.Get(r, n), sum, tolerance) << "row " << r << " column " << n;
    }
  }
}

class QuantizedLinearTest : public testing::TestWithParam<CpuIsa> {};

TEST_P(QuantizedLinearTest, MatchesReference) {
  std::mt19937 random(1);
  OpTestBench bench(GetParam());
  for (const WeightFormat& format : Formats()) {
    for (const auto& [out_features, in_features] :
         {std::pair<int64_t, int64_t>{64, 192}, {1, 96}, {33, 288}, {200, 192}, {130, 384}}) {
      if (!HasQuantizedLayout(format, in_features)) continue;
      for (const auto& [dtype, y_dtype] :
           {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}}) {
        const bool with_bias = out_features == 200 || y_dtype == DType::kBF16;
        const QuantizedCase c =
            MakeCase(bench.ops(), format, out_features, in_features, dtype, with_bias, random);
        for (const int64_t rows : {1, 2, 3, 5, 6, 16, 19, 40}) {
          TestMatrix x(dtype, rows, in_features, 3);
          x.Fill(random);
          const TestMatrix y(y_dtype, rows, out_features, 5);
          RunLinear(bench, x.view(), *c.weight, y.view());
          SCOPED_TRACE(testing::Message()
                       << DescribeWeightFormat(format) << ", " << out_features << "x" << in_features
                       << " rows " << rows << " " << DTypeName(dtype) << " to " << DTypeName(y_dtype));
          ExpectProduct(x, c, y, dtype == DType::kBF16 ? kBf16Rounding : 0.0);
          for (int64_t r = 0; r + 1 < rows; ++r) {  // nothing is written between rows
            EXPECT_TRUE(std::isnan(y.Get(r, out_features)));
          }
        }
      }
    }
  }
}

// More rows than a tile, and k than what is worked on at a time.
TEST_P(QuantizedLinearTest, LargeProductMatchesReference) {
  std::mt19937 random(2);
  OpTestBench bench(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const QuantizedCase c = MakeCase(bench.ops(), Int4Format(32, true), 72, 2080, dtype, true, random);
    TestMatrix x(dtype, 150, 2080);
    x.Fill(random);
    const TestMatrix y(DType::kF32, 150, 72);
    RunLinear(bench, x.view(), *c.weight, y.view());
    ExpectProduct(x, c, y, dtype == DType::kBF16 ? kBf16Rounding : 0.0);
  }
}

// The bits of the product with the dequantized weights, for any number of rows and threads.
TEST_P(QuantizedLinearTest, Fp32HasTheBitsOfDequantizedWeights) {
  std::mt19937 random(3);
  for (const WeightFormat& format : Formats()) {
    // A code of 8 bits times a scale of two factors has more than 24: only a fused multiply-add is exact.
    if (GetParam() == CpuIsa::kPortable && format.bits() == 8 && format.block_size > 0) continue;
    OpTestBench first(GetParam(), 1);
    const QuantizedCase c = MakeCase(first.ops(), format, 160, 1152, DType::kF32, true, random);
    const auto dense = first.ops().CreateLinearWeight(160, 1152, DType::kF32).value();
    dense->LoadRows(0, 160, c.values.view().data);
    dense->LoadBias(0, 160, c.bias.data());
    TestMatrix x(DType::kF32, 33, 1152);
    x.Fill(random);
    const TestMatrix expected(DType::kF32, 33, 160);
    RunLinear(first, x.view(), *dense, expected.view());
    for (const int num_threads : {1, 3}) {
      OpTestBench bench(GetParam(), num_threads);
      for (const int64_t rows : {1, 2, 4, 7, 16, 33}) {
        const TestMatrix y(DType::kF32, rows, 160);
        RunLinear(bench, x.view().Rows(33 - rows, rows), *c.weight, y.view());
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(y.RowEquals(r, expected, 33 - rows + r))
              << DescribeWeightFormat(format) << " row " << r << " of " << rows << ", " << num_threads
              << " threads";
        }
      }
    }
  }
}

// What few bf16 rows lose when they become integers is a part of what rounding them to bf16 lost, also beside
// an outlier; weights are not rounded. Groups of any size: sums of integers must not overflow.
TEST_P(QuantizedLinearTest, FewBf16RowsAreMultipliedFinerThanBf16) {
  std::mt19937 random(8);
  OpTestBench bench(GetParam());
  std::vector<int64_t> row_counts = {1, 3, 4};
  if (GetParam() == CpuIsa::kAmx) row_counts.insert(row_counts.end(), {5, 7, 16});
  for (const WeightFormat& format :
       {Int4Format(32, true), Int4Format(32, false), Int8Format(32, false), Int8Format(64, true),
        Int4Format(576, false), Int8Format(576, true), Int8Format(1152, false)}) {
    const QuantizedCase c = MakeCase(bench.ops(), format, 130, 1152, DType::kBF16, false, random);
    for (const int64_t rows : row_counts) {
      TestMatrix x(DType::kBF16, rows, 1152);
      x.Fill(random);
      for (int64_t r = 0; r < rows; ++r) x.Set(r, 100 * r % 1152, 30.0F);
      const TestMatrix y(DType::kF32, rows, 130);
      RunLinear(bench, x.view(), *c.weight, y.view());
      double errors = 0;
      double bf16_errors = 0;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < 130; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < 1152; ++k) {
            const double product = static_cast<double>(x.Get(r, k)) * c.values.Get(n, k);
            sum += product;
            bf16_errors += product * product * 0x1p-14 / 24;  // a unit of 8 bits, evenly spread
          }
          errors += (y.Get(r, n) - sum) * (y.Get(r, n) - sum);
        }
      }
      EXPECT_LT(std::sqrt(errors), 0.3 * std::sqrt(bf16_errors))
          << DescribeWeightFormat(format) << ", " << rows << " rows";
    }
  }
}

TEST_P(QuantizedLinearTest, RowsThatAreZeroOrNotFiniteStayAlone) {
  std::mt19937 random(9);
  OpTestBench bench(GetParam());
  for (const WeightFormat& format : {Int4Format(32, true), Int8Format(32, false)}) {
    const QuantizedCase c = MakeCase(bench.ops(), format, 64, 96, DType::kBF16, true, random);
    for (const int64_t rows : {4, 9}) {
      TestMatrix x(DType::kBF16, rows, 96);
      x.Fill(random);
      const TestMatrix expected(DType::kF32, rows, 64);
      RunLinear(bench, x.view(), *c.weight, expected.view());
      x.Set(1, 7, std::numeric_limits<float>::infinity());
      x.Set(2, 95, std::numeric_limits<float>::quiet_NaN());
      for (int64_t k = 0; k < 96; ++k) x.Set(3, k, 0.0F);
      const TestMatrix y(DType::kF32, rows, 64);
      RunLinear(bench, x.view(), *c.weight, y.view());
      EXPECT_TRUE(y.RowEquals(0, expected, 0));
      for (int64_t n = 0; n < 64; ++n) {
        EXPECT_FALSE(std::isfinite(y.Get(1, n)));
        EXPECT_FALSE(std::isfinite(y.Get(2, n)));
        EXPECT_EQ(y.Get(3, n), c.bias[static_cast<size_t>(n)]);
      }
    }
  }
}

TEST_P(QuantizedLinearTest, GateUpIsAProductAndSiluMul) {
  std::mt19937 random(4);
  OpTestBench bench(GetParam());
  const QuantizedCase c = MakeCase(bench.ops(), Int8Format(32, false), 42, 64, DType::kF32, false, random);
  TestMatrix x(DType::kF32, 7, 64);
  x.Fill(random);
  const TestMatrix scratch(DType::kF32, 7, 42);
  const TestMatrix y(DType::kF32, 7, 21);
  bench.ops().GateUp(bench.stream(), {x.view(), c.weight.get(), scratch.view(), y.view()});
  bench.Synchronize();
  const TestMatrix product(DType::kF32, 7, 42);
  RunLinear(bench, x.view(), *c.weight, product.view());
  for (int64_t r = 0; r < 7; ++r) {
    for (int64_t j = 0; j < 21; ++j) {
      const double gate = product.Get(r, j);
      const double want = gate / (1.0 + std::exp(-gate)) * product.Get(r, 21 + j);
      EXPECT_NEAR(y.Get(r, j), want, 1e-5 + 1e-6 * std::abs(want));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantizedLinearTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

TEST(QuantizedOneDnnTest, MatchesReference) {
  if (BestCpuIsa() < CpuIsa::kAvx512Bf16) GTEST_SKIP() << "oneDNN has no bf16 below AVX-512";
  std::mt19937 random(7);
  OpTestBench bench(BestCpuIsa(), 2, OneDnnUse::kAlways);
  for (const WeightFormat& format : Formats()) {
    for (const auto& [out_features, in_features] :
         {std::pair<int64_t, int64_t>{72, 192}, {600, 96}, {33, 288}}) {
      if (!HasQuantizedLayout(format, in_features)) continue;
      for (const DType y_dtype : {DType::kF32, DType::kBF16}) {
        const QuantizedCase c = MakeCase(bench.ops(), format, out_features, in_features, DType::kBF16,
                                         out_features == 600, random);
        for (const int64_t rows : {70, 300}) {
          TestMatrix x(DType::kBF16, rows, in_features, 3);
          x.Fill(random);
          const TestMatrix y(y_dtype, rows, out_features, 5);
          RunLinear(bench, x.view(), *c.weight, y.view());
          SCOPED_TRACE(testing::Message() << DescribeWeightFormat(format) << ", " << out_features << "x"
                                          << in_features << " rows " << rows);
          ExpectProduct(x, c, y, kBf16Rounding);
        }
      }
    }
  }
}

TEST(QuantizedWeightTest, EmbeddingReadsItsRows) {
  std::mt19937 random(5);
  OpTestBench bench;
  for (const WeightFormat& format : Formats()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const QuantizedCase c = MakeCase(bench.ops(), format, 150, 192, dtype, false, random);
      TestMatrix wanted(dtype, 150, 192);  // rounds
      for (int64_t r = 0; r < 150; ++r) {
        for (int64_t k = 0; k < 192; ++k) wanted.Set(r, k, c.values.Get(r, k));
      }
      const std::vector<int32_t> ids = {149, 0, 64, 63, 64, 128};
      const TestMatrix out(DType::kF32, 6, 192, 2);
      bench.ops().Embedding(bench.stream(),
                            {.ids = ids.data(), .out = out.view(), .quantized = c.weight.get()});
      bench.Synchronize();
      for (size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < 192; ++k) {
          ASSERT_EQ(out.Get(static_cast<int64_t>(i), k), wanted.Get(ids[i], k))
              << DescribeWeightFormat(format) << " " << DTypeName(dtype) << " id " << ids[i];
        }
      }
    }
  }
}

// Zero points and multiples of units are kept as the integers that they are, whatever the scale.
TEST(QuantizedWeightTest, IntegersBesideTheCodesLoseNothing) {
  std::mt19937 random(8);
  OpTestBench bench;
  for (const WeightFormat& format : Formats()) {
    if (!format.has_zero_points && format.block_size == 0) continue;
    for (const float size : {3e-9F, 1.0F, 1e10F}) {
      QuantizedRows rows = RandomRows(format, 5, 384, random);
      for (std::vector<float>* numbers :
           {&rows.scales, &rows.minimums, &rows.scale_units, &rows.minimum_units}) {
        for (float& number : *numbers) number *= std::exp2(std::round(std::log2(size)));
      }
      const auto weight = bench.ops().CreateQuantizedWeight({5, 384, DType::kF32}, format).value();
      weight->LoadQuantizedRows(0, rows);
      std::vector<float> wanted(rows.codes.size());
      DequantizeRows(rows, wanted.data());
      std::vector<float> found(384);
      for (int64_t r = 0; r < 5; ++r) {
        dynamic_cast<const HostQuantizedWeight&>(*weight).DequantizeRow(r, found.data());
        for (size_t k = 0; k < found.size(); ++k)
          ASSERT_EQ(found[k], wanted[static_cast<size_t>(r) * 384 + k])
              << DescribeWeightFormat(format) << " " << size << " row " << r << " column " << k;
      }
    }
  }
}

// Beyond what fp16 alone holds: the factor of a row brings its scales into range.
TEST(QuantizedWeightTest, ScalesOfAnyMagnitudeKeepElevenBits) {
  OpTestBench bench;
  for (const float size : {1e-30F, 3e-9F, 1e-3F, 1.0F, 6e4F, 1e10F}) {
    QuantizedRows rows;
    rows.Resize(Int4Format(32, true), 1, 64);
    for (size_t i = 0; i < 64; ++i) rows.codes[i] = static_cast<uint8_t>(i % 16);
    rows.scales = {size, size * 0.01F};
    rows.minimums = {-8.3F * size, -0.077F * size};
    const auto weight = bench.ops().CreateQuantizedWeight({1, 64, DType::kF32}, rows.format).value();
    weight->LoadQuantizedRows(0, rows);
    std::vector<float> wanted(64);
    DequantizeRows(rows, wanted.data());
    std::vector<float> found(64);
    dynamic_cast<const HostQuantizedWeight&>(*weight).DequantizeRow(0, found.data());
    for (size_t i = 0; i < 64; ++i) {
      const float group = i < 32 ? size : size * 0.01F;
      ASSERT_NEAR(found[i], wanted[i], 16 * group * 0x1p-11F) << size << " " << i;
    }
  }
}

// No rounding at all, whatever the scale.
TEST(QuantizedWeightTest, Fp8ScalesAreExact) {
  OpTestBench bench;
  for (const float size : {1.2345678e-38F, 3.1415927e-9F, 0.1F, 7.654321e30F}) {
    QuantizedRows rows;
    rows.Resize(Fp8Format(128), 2, 256);
    for (size_t i = 0; i < rows.codes.size(); ++i) rows.codes[i] = static_cast<uint8_t>(i);
    for (uint8_t& code : rows.codes) {
      if ((code & 0x7fU) == 0x7fU) code = 0;
    }
    rows.scales = {size, size / 3, size * 1.1F, -size};
    const auto weight = bench.ops().CreateQuantizedWeight({2, 256, DType::kF32}, rows.format).value();
    weight->LoadQuantizedRows(0, rows);
    std::vector<float> wanted(512);
    DequantizeRows(rows, wanted.data());
    std::vector<float> found(512);
    for (int64_t r = 0; r < 2; ++r)
      dynamic_cast<const HostQuantizedWeight&>(*weight).DequantizeRow(r, found.data() + r * 256);
    EXPECT_EQ(found, wanted) << size;
  }
}

TEST(QuantizedWeightTest, LoadsFloatsRoundedToTheNearestCodes) {
  std::mt19937 random(6);
  OpTestBench bench;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestMatrix values(dtype, 3, 64);
    values.Fill(random);
    const auto weight = bench.ops().CreateQuantizedWeight({3, 64, dtype}, Int8Format(32, true)).value();
    weight->LoadRows(0, 3, values.view().data);
    std::vector<float> row(64);
    for (int64_t r = 0; r < 3; ++r) {
      dynamic_cast<const HostQuantizedWeight&>(*weight).DequantizeRow(r, row.data());
      for (int64_t k = 0; k < 64; ++k) EXPECT_NEAR(row[static_cast<size_t>(k)], values.Get(r, k), 0.03F);
    }
  }
}

TEST(QuantizedWeightTest, RandomRowsAreAFunctionOfSeedAndPlace) {
  OpTestBench bench;
  for (const WeightFormat& format : {Int4Format(32, true), Int8Format(64, false), Fp8Format(128)}) {
    const auto filled = bench.ops().CreateQuantizedWeight({130, 128, DType::kF32}, format).value();
    filled->FillRandom({99, 0.035F});
    QuantizedRows rows;
    HashedRows(99, 0.035F, 65, 65, 128, format, &rows);
    std::vector<float> wanted(65 * 128);
    DequantizeRows(rows, wanted.data());
    double sum_of_squares = 0;
    double sum = 0;
    for (int64_t r = 0; r < 65; ++r) {
      std::vector<float> row(128);
      dynamic_cast<const HostQuantizedWeight&>(*filled).DequantizeRow(65 + r, row.data());
      for (size_t k = 0; k < 128; ++k) {
        ASSERT_EQ(row[k], wanted[static_cast<size_t>(r) * 128 + k]);
        sum += row[k];
        sum_of_squares += static_cast<double>(row[k]) * row[k];
      }
    }
    const double deviation = std::sqrt(sum_of_squares / wanted.size());
    EXPECT_GT(deviation, 0.01);
    EXPECT_LT(deviation, 0.04);
    EXPECT_LT(std::abs(sum / wanted.size()), 0.1 * deviation);
  }
}

TEST(QuantizedWeightTest, RejectsWhatItCannotMultiply) {
  const auto ops = CreateHostOps();
  const auto refused = [&](const QuantizedWeightShape& shape, const WeightFormat& format) {
    EXPECT_FALSE(ops->KeepsQuantized(format, shape.in_features, shape.dtype));
    const auto weight = ops->CreateQuantizedWeight(shape, format);
    return weight.ok() ? ErrorCode::kIo : weight.error().code;
  };
  EXPECT_EQ(refused({64, 64, DType::kF16}, Int4Format(32, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 80, DType::kF32}, Int4Format(32, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 64, DType::kF32}, Int4Format(8, false)), ErrorCode::kUnsupported);
  EXPECT_EQ(refused({64, 64, DType::kF32}, WeightFormat()), ErrorCode::kUnsupported);
  const auto huge = ops->CreateQuantizedWeight({64, int64_t{1} << 44, DType::kF32}, Int8Format(32, false));
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
}

// A weight takes little more than its codes, and small ones share pages.
TEST(QuantizedWeightTest, TakesTheBytesOfItsCodesAndScales) {
  const auto ops = CreateHostOps();
  const auto weight = ops->CreateQuantizedWeight({128, 64, DType::kF32}, Int4Format(32, true)).value();
  EXPECT_EQ(weight->size_bytes(), 128U * (64 / 2 + 2 * 4 + 4));
  const auto other = ops->CreateQuantizedWeight({128, 64, DType::kF32}, Int8Format(64, false)).value();
  EXPECT_EQ(other->size_bytes(), 128U * (64 + 2 + 4));
  // Units of fp16 for 256 codes, and two bytes a group.
  const WeightFormat blocks = InBlocksOf(256, Int4Format(32, true));
  const auto in_blocks = ops->CreateQuantizedWeight({64, 512, DType::kF32}, blocks).value();
  EXPECT_EQ(in_blocks->size_bytes(), 64U * (512 / 2 + 16 * 2 + 2 * 4 + 4));
  EXPECT_EQ(static_cast<size_t>(QuantizedBytes(blocks, 64, 512)), in_blocks->size_bytes() - 64 * 4);
  const auto fp8 = ops->CreateQuantizedWeight({128, 64, DType::kF32}, Fp8Format(64)).value();
  EXPECT_EQ(fp8->size_bytes(), 128U * (64 + 4 + 4));
  const auto* a = dynamic_cast<const HostQuantizedWeight&>(*weight).panels();
  const auto* b = dynamic_cast<const HostQuantizedWeight&>(*other).panels();
  EXPECT_EQ(b - a, 128 * (64 / 2 + 2 * 4));
}

}  // namespace
}  // namespace tandem
