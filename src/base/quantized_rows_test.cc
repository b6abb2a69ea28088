#include "base/quantized_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/dtype.h"

namespace tandem {
namespace {

std::vector<float> Normal(size_t count, float scale) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.01F * scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(QuantizeRowsTest, ErrorsAreHalfAStepAtMost) {
  for (const float scale : {1e-4F, 1.0F, 300.0F}) {
    const std::vector<float> values = Normal(6 * 96, scale);
    for (const WeightFormat& format :
         {Int4Format(32, false), Int4Format(32, true), Int8Format(16, true), Int8Format(96, false),
          WithZeroPoints(Int4Format(32, false)), InBlocksOf(48, Int8Format(16, true))}) {
      SCOPED_TRACE(DescribeWeightFormat(format));
      QuantizedRows rows;
      QuantizeRows(values.data(), 6, 96, format, &rows);
      std::vector<float> found(values.size());
      DequantizeRows(rows, found.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const float step = std::abs(rows.scales[i / static_cast<size_t>(format.group_size)]);
        // Without a minimum the code that has no counterpart may be on the other side: a whole step.
        const bool is_symmetric = !format.has_minimum || format.has_zero_points;
        const float bound = !is_symmetric ? 0.51F * step + std::abs(values[i]) * 0x1p-10F : 1.01F * step;
        ASSERT_LE(std::abs(found[i] - values[i]), bound) << i;
      }
    }
  }
}

TEST(QuantizeRowsTest, EqualValuesAndZerosAreExact) {
  for (const float value : {0.0F, 1.5F, -0.25F}) {
    const std::vector<float> values(64, value);
    for (const WeightFormat& format :
         {Int4Format(32, false), Int4Format(64, true), Int8Format(32, false), Fp8Format(64)}) {
      QuantizedRows rows;
      QuantizeRows(values.data(), 1, 64, format, &rows);
      std::vector<float> found(values.size());
      DequantizeRows(rows, found.data());
      EXPECT_EQ(found, values) << DescribeWeightFormat(format);
    }
  }
}

TEST(E4M3Test, EveryCodeIsTheNearestToItsValueAndToWhatIsBesideIt) {
  const auto next = [](uint8_t code) { return E4M3ToF32(static_cast<uint8_t>(code + 1)); };
  for (uint8_t code = 0; code < 0x7f; ++code) {
    const float value = E4M3ToF32(code);
    for (const uint8_t sign : {0, 0x80}) {
      const float signed_value = sign == 0 ? value : -value;
      ASSERT_EQ(F32ToE4M3(signed_value), code | sign) << value;
    }
    if (code == 0x7e) break;
    const float middle = (value + next(code)) / 2;
    EXPECT_EQ(F32ToE4M3(middle), code % 2 == 0 ? code : code + 1) << "ties go to even: " << middle;
    EXPECT_EQ(F32ToE4M3(std::nextafter(middle, 0.0F)), code) << middle;
    EXPECT_EQ(F32ToE4M3(std::nextafter(middle, 1e9F)), code + 1) << middle;
  }
  EXPECT_EQ(F32ToE4M3(1e30F), 0x7e);
  EXPECT_EQ(F32ToE4M3(-INFINITY), 0xfe);
  EXPECT_EQ(F32ToE4M3(1e-30F), 0);
  EXPECT_EQ(F32ToE4M3(NAN) & 0x7f, 0x7f);
}

TEST(QuantizeRowsTest, Fp8IsWithinHalfAUnitOfItsPrecision) {
  for (const float scale : {1e-30F, 1e-4F, 1.0F, 300.0F, 1e30F}) {
    const std::vector<float> values = Normal(6 * 96, scale);
    for (const int64_t group_size : {16, 32, 96}) {
      QuantizedRows rows;
      QuantizeRows(values.data(), 6, 96, Fp8Format(group_size), &rows);
      std::vector<float> found(values.size());
      DequantizeRows(rows, found.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const float unit = rows.scales[i / static_cast<size_t>(group_size)] * 0x1p-9F;
        ASSERT_LE(std::abs(found[i] - values[i]), std::abs(values[i]) * 0.0626F + 0.51F * unit) << i;
      }
    }
  }
}

TEST(HashedRowsTest, SpreadIsThatOfUniformValues) {
  constexpr float kBound = 0.035F;
  for (const WeightFormat& format : {Int4Format(128, true), Int8Format(128, false), Fp8Format(512)}) {
    QuantizedRows rows;
    HashedRows(3, kBound, 10, 200, 512, format, &rows);
    std::vector<float> values(rows.codes.size());
    DequantizeRows(rows, values.data());
    double squares = 0.0;
    for (const float value : values) squares += double{value} * value;
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    EXPECT_GT(deviation, 0.6 * kBound / std::sqrt(3.0)) << DescribeWeightFormat(format);
    EXPECT_LT(deviation, 1.7 * kBound / std::sqrt(3.0)) << DescribeWeightFormat(format);
  }
}

TEST(CommonWeightFormatTest, HoldsBoth) {
  EXPECT_EQ(CommonWeightFormat(Int4Format(32, true), Int8Format(16, false)), Int8Format(16, true));
  EXPECT_EQ(CommonWeightFormat(Int4Format(128, false), Int4Format(96, false)), Int4Format(32, false));
  EXPECT_FALSE(CommonWeightFormat(Int4Format(32, true), WeightFormat()).is_quantized());
  EXPECT_EQ(CommonWeightFormat(Fp8Format(128), Fp8Format(96)), Fp8Format(32));
  EXPECT_FALSE(CommonWeightFormat(Fp8Format(128), Int8Format(128, false)).is_quantized());
}

TEST(CommonWeightFormatTest, KeepsIntegersOfScalesAndMinimums) {
  const WeightFormat zeros = WithZeroPoints(Int4Format(128, true));
  EXPECT_EQ(CommonWeightFormat(zeros, Int8Format(64, false)), WithZeroPoints(Int8Format(64, true)));
  EXPECT_EQ(CommonWeightFormat(zeros, Int4Format(64, true)), Int4Format(64, true));
  const WeightFormat q4_k = InBlocksOf(256, Int4Format(32, true));
  const WeightFormat q6_k = InBlocksOf(256, Int8Format(16, false));
  EXPECT_EQ(CommonWeightFormat(q4_k, q6_k), InBlocksOf(256, Int8Format(16, true)));
  EXPECT_EQ(CommonWeightFormat(q6_k, Int4Format(32, false)), InBlocksOf(32, Int8Format(16, false)));
  EXPECT_EQ(CommonWeightFormat(q4_k, zeros), InBlocksOf(128, Int4Format(32, true)));
  EXPECT_EQ(DescribeWeightFormat(zeros), "int4, groups of 128 with zero point");
  EXPECT_EQ(DescribeWeightFormat(q4_k), "int4, groups of 32 with minimum in blocks of 256");
  EXPECT_EQ(QuantizedBytes(q4_k, 3, 512), 3 * (256 + 16 * 2 + 2 * 4));
  EXPECT_EQ(QuantizedBytes(zeros, 3, 512), 3 * (256 + 4 * 4));
}

// Zero points and units have whole multiples of them beside them, in every format that holds a format.
TEST(WidenRowsTest, KeepsIntegersOfScalesAndMinimums) {
  const std::vector<float> values = Normal(2 * 256, 1.0F);
  QuantizedRows rows;
  QuantizeRows(values.data(), 2, 256, Int4Format(64, false), &rows);
  std::vector<float> wanted(values.size());
  DequantizeRows(rows, wanted.data());
  for (const WeightFormat& other :
       {WithZeroPoints(Int8Format(32, true)), InBlocksOf(256, Int8Format(16, false)),
        InBlocksOf(256, Int4Format(32, true))}) {
    const WeightFormat format = CommonWeightFormat(rows.format, other);
    SCOPED_TRACE(DescribeWeightFormat(format));
    const QuantizedRows wide = WidenRows(rows, format);
    std::vector<float> found(values.size());
    DequantizeRows(wide, found.data());
    EXPECT_EQ(found, wanted);
    for (size_t g = 0; g < wide.scales.size(); ++g) {
      const float scale = wide.scales[g];
      if (format.has_zero_points) {
        EXPECT_EQ(wide.minimums[g], -8 * scale);
      } else {
        const size_t block =
            g * static_cast<size_t>(format.group_size) / static_cast<size_t>(format.block_size);
        EXPECT_EQ(scale, wide.scale_units.at(block));
        if (!format.has_minimum) continue;
        EXPECT_EQ(wide.minimums[g], wide.minimum_units.at(block));
      }
    }
  }
}

TEST(Fp8Test, ValuesAreThoseOfTheirBits) {
  EXPECT_EQ(E4M3ToF32(0x00), 0.0F);
  EXPECT_TRUE(std::signbit(E4M3ToF32(0x80)));
  EXPECT_EQ(E4M3ToF32(0x01), 0x1p-9F);
  EXPECT_EQ(E4M3ToF32(0x07), 7 * 0x1p-9F);
  EXPECT_EQ(E4M3ToF32(0x08), 0x1p-6F);
  EXPECT_EQ(E4M3ToF32(0x38), 1.0F);
  EXPECT_EQ(E4M3ToF32(0xbc), -1.5F);
  EXPECT_EQ(E4M3ToF32(0x7e), 448.0F);
  EXPECT_TRUE(std::isnan(E4M3ToF32(0x7f)) && std::isnan(E4M3ToF32(0xff)));
}

TEST(Fp8Test, SmallerGroupsHoldTheSameValues) {
  QuantizedRows rows;
  rows.Resize(Fp8Format(4), 1, 8);
  rows.codes = {0x38, 0xbc, 0x00, 0x7e, 0x01, 0x40, 0x44, 0xb8};
  rows.scales = {0.5F, 3.0F};
  const std::vector<float> wanted = {0.5F, -0.75F, 0.0F, 224.0F, 3 * 0x1p-9F, 6.0F, 9.0F, -3.0F};
  std::vector<float> found(8);
  DequantizeRows(rows, found.data());
  EXPECT_EQ(found, wanted);
  DequantizeRows(WidenRows(rows, Fp8Format(2)), found.data());
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(DescribeWeightFormat(rows.format), "fp8, groups of 4");
  EXPECT_EQ(QuantizedBytes(rows.format, 3, 8), 3 * (8 + 2 * 4));
}

}  // namespace
}  // namespace tandem
