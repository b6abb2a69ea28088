#include "load/quantization.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "load/conversion_sets.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

constexpr GgmlType kAllTypes[] = {GgmlType::kF32,  GgmlType::kF16,  GgmlType::kBF16, GgmlType::kQ8_0,
                                  GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1,
                                  GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K};

std::string FixturePath(const std::string& name) {
  return std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/load/" + name;
}

std::vector<float> ReadFloats(const std::string& path) {
  const std::string bytes = ReadFileBytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

class QuantizationTest : public testing::TestWithParam<GgmlType> {
 protected:
  void SetUp() override {
    format_ = &GetBlockFormat(GetParam());
    const std::string name(format_->name);
    // One byte in front, so that the blocks are aligned to nothing.
    shifted_blocks_.assign(1, 'x').append(ReadFileBytes(FixturePath(name + ".blocks.bin")));
    expected_ = ReadFloats(FixturePath(name + ".f32.bin"));
    ASSERT_EQ(expected_.size(), 2304U);
    ASSERT_EQ(shifted_blocks_.size() - 1, expected_.size() / format_->block_elements * format_->block_bytes);
  }

  const uint8_t* blocks() const { return reinterpret_cast<const uint8_t*>(shifted_blocks_.data()) + 1; }
  int64_t size() const { return static_cast<int64_t>(expected_.size()); }

  const BlockFormat* format_ = nullptr;
  std::string shifted_blocks_;
  std::vector<float> expected_;
};

TEST_P(QuantizationTest, EqualsReferenceBitForBit) {
  std::vector<float> values(expected_.size());
  ConvertElements(GetParam(), blocks(), size(), DType::kF32, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected_[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected_[i]))
          << i << ": " << values[i] << " instead of " << expected_[i];
    }
  }
}

TEST_P(QuantizationTest, RoundsOnceToSixteenBits) {
  std::vector<uint16_t> values(expected_.size());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    ConvertElements(GetParam(), blocks(), size(), dtype, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(expected_[i])) {
        const float value = dtype == DType::kBF16 ? BF16ToF32(values[i]) : F16ToF32(values[i]);
        ASSERT_TRUE(std::isnan(value)) << DTypeName(dtype) << " " << i;
      } else {
        const uint16_t wanted = dtype == DType::kBF16 ? F32ToBF16(expected_[i]) : F32ToF16(expected_[i]);
        ASSERT_EQ(values[i], wanted) << DTypeName(dtype) << " " << i;
      }
    }
  }
}

TEST_P(QuantizationTest, AllInstructionSetsGiveEqualBits) {
  if (ConversionInstructionSet() == "baseline") GTEST_SKIP() << "this CPU has only the baseline";
  std::vector<uint32_t> baseline(expected_.size());
  std::vector<uint32_t> chosen(expected_.size());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    // Copies, which keep the payload of a NaN.
    if (GetParam() == GgmlType::kF16 && dtype == DType::kF16) continue;
    if (GetParam() == GgmlType::kBF16 && dtype == DType::kBF16) continue;
    ConvertBaseline(GetParam(), format_->block_elements, format_->block_bytes, blocks(), size(), dtype,
                    baseline.data());
    ConvertElements(GetParam(), blocks(), size(), dtype, chosen.data());
    EXPECT_EQ(baseline, chosen) << DTypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, QuantizationTest, testing::ValuesIn(kAllTypes),
                         [](const testing::TestParamInfo<GgmlType>& param) {
                           return std::string(GetBlockFormat(param.param).name);
                         });

TEST(QuantizationFormatsTest, UnknownCodesHaveNoFormat) {
  for (const uint32_t code : {4U, 5U, 9U, 10U, 15U, 24U, 29U, 31U, 0x80000000U, 0xffffffffU})
    EXPECT_EQ(FindBlockFormat(code), nullptr) << code;
}

// Every half, and floats around every rounding border of fp16 and bf16, against the scalar conversions.
TEST(QuantizationFormatsTest, FloatConversionsEqualScalarOnes) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  ConvertElements(GgmlType::kF16, reinterpret_cast<const uint8_t*>(halves.data()), 65536, DType::kF32,
                  floats.data());
  std::vector<float> borders;
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(F16ToF32(halves[i]))) << i;
    const auto bits = std::bit_cast<uint32_t>(floats[i]);
    for (const uint32_t delta : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x1fffU}) {
      borders.push_back(std::bit_cast<float>(bits + delta));
      borders.push_back(std::bit_cast<float>((static_cast<uint32_t>(i) << 16) + delta * 8));
    }
  }
  std::vector<uint16_t> rounded(borders.size());
  const auto* src = reinterpret_cast<const uint8_t*>(borders.data());
  ConvertElements(GgmlType::kF32, src, static_cast<int64_t>(borders.size()), DType::kF16, rounded.data());
  for (size_t i = 0; i < borders.size(); ++i) ASSERT_EQ(rounded[i], F32ToF16(borders[i])) << borders[i];
  ConvertElements(GgmlType::kF32, src, static_cast<int64_t>(borders.size()), DType::kBF16, rounded.data());
  for (size_t i = 0; i < borders.size(); ++i) ASSERT_EQ(rounded[i], F32ToBF16(borders[i])) << borders[i];
}

}  // namespace
}  // namespace tandem
