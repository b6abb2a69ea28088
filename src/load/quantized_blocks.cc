#include "load/quantized_blocks.h"

#include "base/check.h"
#include "load/block_fields.h"

namespace tandem {
namespace {

// Moves a code without minimum from its zero to that of 8 bits.
constexpr int kZero8 = 128;

// Where the numbers of a block go. minimum and units: nullptr where the format has none.
struct BlockNumbers {
  float* scales = nullptr;
  float* minimums = nullptr;
  float* scale_unit = nullptr;
  float* minimum_unit = nullptr;
};

void SplitNibbles(const uint8_t* packed, int count, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    codes[i] = packed[i] & 15U;
    codes[i + count] = packed[i] >> 4;
  }
}

// Adds bits 16 of codes: bit i of fifth for code i.
void AddFifthBits(uint32_t fifth, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | ((fifth >> i) & 1U) << 4);
}

void SplitQ8_0(const uint8_t* block, uint8_t* codes, const BlockNumbers& numbers) {
  numbers.scales[0] = LoadHalf(block);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(static_cast<int8_t>(block[2 + i]) + kZero8);
}

void SplitQ4(const uint8_t* block, bool has_minimum, uint8_t* codes, const BlockNumbers& numbers) {
  numbers.scales[0] = LoadHalf(block);
  if (has_minimum) numbers.minimums[0] = LoadHalf(block + 2);
  SplitNibbles(block + (has_minimum ? 4 : 2), 16, codes);
}

void SplitQ5(const uint8_t* block, bool has_minimum, uint8_t* codes, const BlockNumbers& numbers) {
  numbers.scales[0] = LoadHalf(block);
  if (has_minimum) numbers.minimums[0] = LoadHalf(block + 2);
  const uint8_t* fifth = block + (has_minimum ? 4 : 2);
  SplitNibbles(fifth + 4, 16, codes);
  AddFifthBits(LoadU32(fifth), codes);
  if (has_minimum) return;
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] - 16 + kZero8);
}

// fifth: 32 bytes with a bit for each group, or nullptr.
void SplitK(const uint8_t* block, const uint8_t* fifth, const uint8_t* nibbles, uint8_t* codes,
            const BlockNumbers& numbers) {
  *numbers.scale_unit = LoadHalf(block);
  *numbers.minimum_unit = -LoadHalf(block + 2);
  const GroupScales groups = UnpackGroupScales(block + 4, LoadHalf(block), LoadHalf(block + 2));
  for (int g = 0; g < 8; ++g) {
    numbers.scales[g] = groups.scale[g];
    numbers.minimums[g] = -groups.minimum[g];
  }
  for (int pair = 0; pair < 4; ++pair) SplitNibbles(nibbles + 32 * pair, 32, codes + 64 * pair);
  if (fifth == nullptr) return;
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<uint8_t>(codes[i] | ((fifth[i % 32] >> (i / 32)) & 1) << 4);
}

void SplitQ6_K(const uint8_t* block, uint8_t* codes, const BlockNumbers& numbers) {
  *numbers.scale_unit = LoadHalf(block + 208);
  for (int group = 0; group < 16; ++group)
    numbers.scales[group] = *numbers.scale_unit * static_cast<float>(static_cast<int8_t>(block[192 + group]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i / 32 % 4;
    const uint8_t nibble = block[64 * half + 32 * (quarter % 2) + i % 32] >> (4 * (quarter / 2)) & 15;
    const int high = (block[128 + 32 * half + i % 32] >> (2 * quarter)) & 3;
    codes[i] = static_cast<uint8_t>((nibble | high << 4) - 32 + kZero8);
  }
}

void SplitBlock(GgmlType type, const uint8_t* block, uint8_t* codes, const BlockNumbers& numbers) {
  switch (type) {
    case GgmlType::kQ8_0:
      return SplitQ8_0(block, codes, numbers);
    case GgmlType::kQ4_0:
      return SplitQ4(block, false, codes, numbers);
    case GgmlType::kQ4_1:
      return SplitQ4(block, true, codes, numbers);
    case GgmlType::kQ5_0:
      return SplitQ5(block, false, codes, numbers);
    case GgmlType::kQ5_1:
      return SplitQ5(block, true, codes, numbers);
    case GgmlType::kQ4_K:
      return SplitK(block, nullptr, block + 16, codes, numbers);
    case GgmlType::kQ5_K:
      return SplitK(block, block + 16, block + 48, codes, numbers);
    case GgmlType::kQ6_K:
      return SplitQ6_K(block, codes, numbers);
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
}

}  // namespace

WeightFormat WeightFormatOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return Int4Format(32, false);
    case GgmlType::kQ4_1:
      return Int4Format(32, true);
    case GgmlType::kQ4_K:
      return InBlocksOf(256, Int4Format(32, true));
    case GgmlType::kQ5_0:
    case GgmlType::kQ8_0:
      return Int8Format(32, false);
    case GgmlType::kQ5_1:
      return Int8Format(32, true);
    case GgmlType::kQ5_K:
      return InBlocksOf(256, Int8Format(32, true));
    case GgmlType::kQ6_K:
      return InBlocksOf(256, Int8Format(16, false));
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  return {};
}

void SplitBlocks(GgmlType type, const uint8_t* src, int64_t row, QuantizedRows* rows) {
  const BlockFormat& block = GetBlockFormat(type);
  const WeightFormat& format = rows->format;
  TANDEM_CHECK(format.is_quantized() && format == WeightFormatOf(type), "{} as {}", block.name,
               DescribeWeightFormat(format));
  TANDEM_CHECK(rows->cols % block.block_elements == 0, "{} values of {}", rows->cols, block.name);
  for (int64_t i = 0; i < rows->cols / block.block_elements; ++i) {
    const int64_t group = row * rows->num_groups() + i * (block.block_elements / format.group_size);
    const int64_t unit = row * rows->num_blocks() + i;
    BlockNumbers numbers = {.scales = rows->scales.data() + group};
    if (format.has_minimum) numbers.minimums = rows->minimums.data() + group;
    if (format.block_size > 0) numbers.scale_unit = rows->scale_units.data() + unit;
    if (format.block_size > 0 && format.has_minimum) numbers.minimum_unit = rows->minimum_units.data() + unit;
    SplitBlock(type, src + i * block.block_bytes,
               rows->codes.data() + row * rows->cols + i * block.block_elements, numbers);
  }
}

}  // namespace tandem
