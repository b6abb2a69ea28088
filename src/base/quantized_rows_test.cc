#include "base/quantized_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

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
         {Int4Format(32, false), Int4Format(32, true), Int8Format(16, true), Int8Format(96, false)}) {
      SCOPED_TRACE(DescribeWeightFormat(format));
      QuantizedRows rows;
      QuantizeRows(values.data(), 6, 96, format, &rows);
      std::vector<float> found(values.size());
      DequantizeRows(rows, found.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const float step = std::abs(rows.scales[i / static_cast<size_t>(format.group_size)]);
        // Without a minimum the code that has no counterpart may be on the other side: a whole step.
        const float bound = format.has_minimum ? 0.51F * step + std::abs(values[i]) * 0x1p-10F : 1.01F * step;
        ASSERT_LE(std::abs(found[i] - values[i]), bound) << i;
      }
    }
  }
}

TEST(QuantizeRowsTest, EqualValuesAndZerosAreExact) {
  for (const float value : {0.0F, 1.5F, -0.25F}) {
    const std::vector<float> values(64, value);
    for (const WeightFormat& format : {Int4Format(32, false), Int4Format(64, true), Int8Format(32, false)}) {
      QuantizedRows rows;
      QuantizeRows(values.data(), 1, 64, format, &rows);
      std::vector<float> found(values.size());
      DequantizeRows(rows, found.data());
      EXPECT_EQ(found, values) << DescribeWeightFormat(format);
    }
  }
}

TEST(CommonWeightFormatTest, HoldsBoth) {
  EXPECT_EQ(CommonWeightFormat(Int4Format(32, true), Int8Format(16, false)), Int8Format(16, true));
  EXPECT_EQ(CommonWeightFormat(Int4Format(128, false), Int4Format(96, false)), Int4Format(32, false));
  EXPECT_FALSE(CommonWeightFormat(Int4Format(32, true), WeightFormat()).is_quantized());
}

}  // namespace
}  // namespace tandem
