#include "load/quantized_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/quantized_rows.h"
#include "load/checkpoint.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

constexpr GgmlType kQuantizedTypes[] = {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0,
                                        GgmlType::kQ5_1, GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K};

std::string Blocks(GgmlType type) {
  return ReadFileBytes(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/load/" +
                       std::string(GetBlockFormat(type).name) + ".blocks.bin");
}

QuantizedRows Split(GgmlType type, const std::string& blocks) {
  const BlockFormat& block = GetBlockFormat(type);
  QuantizedRows rows;
  rows.Resize(WeightFormatOf(type), 1,
              static_cast<int64_t>(blocks.size()) / block.block_bytes * block.block_elements);
  SplitBlocks(type, reinterpret_cast<const uint8_t*>(blocks.data()), 0, &rows);
  return rows;
}

std::vector<float> Values(const QuantizedRows& rows) {
  std::vector<float> values(rows.codes.size());
  DequantizeRows(rows, values.data());
  return values;
}

// Bits, but for zeros and NaNs of either sign.
void ExpectEqual(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << i;
    } else {
      ASSERT_EQ(found[i], wanted[i]) << i;
    }
  }
}

void ExpectMultiple(float number, float unit) {
  if (!std::isfinite(unit)) return;
  const float multiple = unit == 0.0F ? 0.0F : number / unit;
  EXPECT_EQ(multiple, std::round(multiple));
  EXPECT_TRUE(multiple >= -128.0F && multiple <= 127.0F) << multiple;
  EXPECT_EQ(multiple * unit, number);
}

class QuantizedBlocksTest : public testing::TestWithParam<GgmlType> {};

TEST_P(QuantizedBlocksTest, HoldTheDequantizedValues) {
  const std::string blocks = Blocks(GetParam());
  const QuantizedRows rows = Split(GetParam(), blocks);
  ASSERT_GE(rows.cols, 2304);
  std::vector<float> wanted(rows.codes.size());
  ConvertElements(GetParam(), reinterpret_cast<const uint8_t*>(blocks.data()), rows.cols, DType::kF32,
                  wanted.data());
  ExpectEqual(Values(rows), wanted);
  const uint8_t largest = *std::max_element(rows.codes.begin(), rows.codes.end());
  EXPECT_LT(largest, 1 << rows.format.bits());
}

TEST_P(QuantizedBlocksTest, WiderFormatsHoldTheSameValues) {
  const QuantizedRows rows = Split(GetParam(), Blocks(GetParam()));
  const std::vector<float> values = Values(rows);
  for (const GgmlType other : kQuantizedTypes) {
    const WeightFormat format = CommonWeightFormat(rows.format, WeightFormatOf(other));
    SCOPED_TRACE(DescribeWeightFormat(format));
    const QuantizedRows wide = WidenRows(rows, format);
    EXPECT_EQ(wide.format, format);
    ExpectEqual(Values(wide), values);
    for (int64_t g = 0; format.block_size > 0 && g < wide.num_groups(); ++g) {
      const auto at = static_cast<size_t>(g);
      const auto block = static_cast<size_t>(g * format.group_size / format.block_size);
      ExpectMultiple(wide.scales[at], wide.scale_units[block]);
      if (format.has_minimum) ExpectMultiple(wide.minimums[at], wide.minimum_units[block]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedBlocksTest, testing::ValuesIn(kQuantizedTypes),
                         [](const testing::TestParamInfo<GgmlType>& param) {
                           return std::string(GetBlockFormat(param.param).name);
                         });

// One block of 32 with scale 1 a row: row r holds codes r (mod 16).
std::string RowsOfQ4_0(size_t num_rows) {
  std::string blocks;
  for (size_t r = 0; r < num_rows; ++r) {
    for (int block = 0; block < 2; ++block) {
      blocks += std::string("\x00\x3c", 2);
      blocks += std::string(16, static_cast<char>(r % 16 * 17));
    }
  }
  return blocks;
}

class ReadQuantizedRowsTest : public testing::Test {
 protected:
  // The tiny llama with q (64 x 64, permuted heads) in Q4_0.
  std::unique_ptr<Checkpoint> Open(const std::string& blocks) {
    std::vector<TinyTensor> tensors = TinyLlamaTensors();
    for (TinyTensor& tensor : tensors) {
      if (tensor.name != "blk.0.attn_q.weight") continue;
      tensor.type = GgmlType::kQ4_0;
      tensor.data = blocks;
    }
    path_ = folder_.Write("model.gguf", TinyLlamaGguf(tensors).bytes());
    return Checkpoint::Open(path_).value();
  }

  const TemporaryFolder folder_;
  std::string path_;
  const std::string q_ = "model.layers.0.self_attn.q_proj.weight";
  const std::string float_ = "lm_head.weight";
};

TEST_F(ReadQuantizedRowsTest, PutsPermutedRowsInOrder) {
  const auto checkpoint = Open(RowsOfQ4_0(64));
  EXPECT_EQ(checkpoint->Find(q_)->format, Int4Format(32, false));
  EXPECT_FALSE(checkpoint->Find(float_)->format.is_quantized());
  for (const WeightFormat& format : {Int4Format(32, false), Int8Format(16, false), Int8Format(32, true)}) {
    QuantizedRows rows;
    ASSERT_TRUE(checkpoint->ReadQuantizedRows(q_, 5, 30, format, &rows).ok());
    std::vector<float> wanted(30 * 64);
    ASSERT_TRUE(checkpoint->ReadRows(q_, 5, 30, DType::kF32, wanted.data()).ok());
    ExpectEqual(Values(rows), wanted);
    EXPECT_EQ(rows.format, format);
  }
}

TEST_F(ReadQuantizedRowsTest, QuantizesFloats) {
  const auto checkpoint = Open(RowsOfQ4_0(64));
  QuantizedRows rows;
  ASSERT_TRUE(checkpoint->ReadQuantizedRows(float_, 3, 2, Int8Format(32, true), &rows).ok());
  std::vector<float> wanted(2 * 64);
  ASSERT_TRUE(checkpoint->ReadRows(float_, 3, 2, DType::kF32, wanted.data()).ok());
  const std::vector<float> found = Values(rows);
  // A group's values lie 1/64 apart; scale and minimum are rounded to 11 bits.
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], std::abs(wanted[i]) * 0x1p-11) << i;
}

TEST_F(ReadQuantizedRowsTest, SaysWhatIsWrong) {
  std::string blocks = RowsOfQ4_0(64);
  blocks.replace(36, 2, std::string("\x00\x7c", 2));  // the scale of row 1 of the file is infinite
  const auto checkpoint = Open(blocks);
  QuantizedRows rows;
  const auto error = [&](const std::string& name, const WeightFormat& format, int64_t num_rows) {
    const Status status = checkpoint->ReadQuantizedRows(name, 0, num_rows, format, &rows);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(error(q_, Int4Format(32, false), 64),
            path_ + ": tensor '" + q_ + "' has a scale that is not finite");
  EXPECT_EQ(error(float_, Int8Format(48, false), 1),
            path_ + ": tensor '" + float_ + "' has rows of 64, not a multiple of groups of 48");
  EXPECT_EQ(error("nothing", Int8Format(32, false), 1), path_ + ": no tensor 'nothing'");
  EXPECT_EQ(error(q_, Int8Format(32, false), 65),
            path_ + ": tensor '" + q_ + "' has 64 rows, 65 from row 0 were asked for");
}

}  // namespace
}  // namespace tandem
