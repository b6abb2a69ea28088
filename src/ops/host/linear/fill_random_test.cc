#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/hashed_uniform.h"
#include "ops/host/linear/linear_weight.h"
#include "ops/host/op_test_bench.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 0x1234567890abcdefU;
constexpr float kBound = 0.25F;

float Expected(DType dtype, int64_t row, int64_t col, int64_t num_columns) {
  const float value = HashedUniform(kSeed, static_cast<uint64_t>(row * num_columns + col), kBound);
  return dtype == DType::kF32 ? value : BF16ToF32(F32ToBF16(value));
}

TEST(HashedUniform, IsUniformWithinItsBound) {
  constexpr int64_t kCount = 100'000;
  double sum = 0;
  double sum_of_squares = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double value = HashedUniform(kSeed, static_cast<uint64_t>(i), kBound);
    ASSERT_GE(value, -kBound);
    ASSERT_LT(value, kBound);
    sum += value;
    sum_of_squares += value * value;
  }
  // Five standard errors.
  EXPECT_NEAR(sum / kCount, 0.0, 5 * kBound / std::sqrt(3.0 * kCount));
  EXPECT_NEAR(sum_of_squares / kCount, kBound * kBound / 3.0, 0.01 * kBound * kBound);
}

class FillRandomTest : public testing::TestWithParam<DType> {};

TEST_P(FillRandomTest, FillsAMatrix) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 77}, {130, 513}}) {
    OpTestBench bench;
    TestMatrix matrix(GetParam(), rows, cols);
    bench.ops().FillRandom(bench.stream(), matrix.view(), {kSeed, kBound});
    bench.Synchronize();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(matrix.Get(r, c), Expected(GetParam(), r, c, cols)) << r << ", " << c;
      }
    }
  }
}

TEST_P(FillRandomTest, FillsAWeightWithTheValuesOfAMatrix) {
  for (const auto& [out_features, in_features] : {std::pair{1, 1}, {63, 33}, {200, 96}, {321, 130}}) {
    OpTestBench bench;
    WeightArena arena;
    auto filled = HostLinearWeight::Create(out_features, in_features, GetParam(), &arena);
    auto loaded = HostLinearWeight::Create(out_features, in_features, GetParam(), &arena);
    ASSERT_TRUE(filled.ok() && loaded.ok());
    TestMatrix matrix(GetParam(), out_features, in_features);
    bench.ops().FillRandom(bench.stream(), matrix.view(), {kSeed, kBound});
    bench.Synchronize();
    (*filled)->FillRandom({kSeed, kBound});
    (*loaded)->LoadRows(0, out_features, matrix.view().data);
    const auto& a = dynamic_cast<const HostLinearWeight&>(**filled);
    const auto& b = dynamic_cast<const HostLinearWeight&>(**loaded);
    EXPECT_EQ(std::memcmp(a.panels(), b.panels(), a.size_bytes()), 0)
        << "[" << out_features << ", " << in_features << "]";
  }
}

TEST(FillRandomDeathTest, APartIsAsLargeAsWhatItFills) {
  TestMatrix matrix(DType::kF32, 5, 8);
  const auto fill = [&](const MatrixCut& part) {
    OpTestBench bench;
    bench.ops().FillRandom(bench.stream(), matrix.view(), {kSeed, kBound, &part});
  };
  EXPECT_DEATH(fill({.rows = {{0, 2}, {6, 2}}, .columns = {8, 8}, .num_columns = 16}), "for .5, 8.");
  EXPECT_DEATH(fill({.rows = {{0, 5}}, .columns = {0, 9}, .num_columns = 16}), "for .5, 8.");
  EXPECT_DEATH(fill({.rows = {}, .columns = {0, 8}, .num_columns = 16}), "0 runs of rows");
}

INSTANTIATE_TEST_SUITE_P(DTypes, FillRandomTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& param) { return std::string(DTypeName(param.param)); });

}  // namespace
}  // namespace tandem
