// How the numbers of a weight are stored: floats, or codes of a few bits whose scales groups of them share.
//
// Groups lie along in_features. Without a minimum a code stands for scale * (code - 2^(bits - 1)), with one
// for scale * code + minimum; codes are unsigned. A minimum may be told as a zero point, an integer: it is
// then -scale * zero point. Scales and minimums may be told as integers of 8 bits, of a block's two units.
// Codes of kFp8 are the bits of E4M3 floats, which stand for scale times their value.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

enum class WeightEncoding : uint8_t { kFloat, kInt4, kInt8, kFp8 };

struct WeightFormat {
  WeightEncoding encoding = WeightEncoding::kFloat;
  int64_t group_size = 0;    // of codes, at least 1
  bool has_minimum = false;  // a group's own, besides its scale
  // The minimum is -scale times an integer, 0 to 2^bits - 1. Only with a minimum, and without blocks.
  bool has_zero_points = false;
  // Of codes, a multiple of group_size: scales, and minimums, of the groups of a block are whole multiples,
  // -128 to 127, of one number. 0: every one is a number of its own.
  int64_t block_size = 0;

  constexpr bool is_quantized() const { return encoding != WeightEncoding::kFloat; }
  constexpr bool has_integers() const { return is_quantized() && encoding != WeightEncoding::kFp8; }
  // Of a code. CHECKs that there are codes.
  int bits() const;
  // What an integer without a minimum is counted from.
  int zero_code() const { return 1 << (bits() - 1); }
  bool operator==(const WeightFormat&) const = default;
};

constexpr WeightFormat Int4Format(int64_t group_size, bool has_minimum) {
  return {WeightEncoding::kInt4, group_size, has_minimum};
}
constexpr WeightFormat Int8Format(int64_t group_size, bool has_minimum) {
  return {WeightEncoding::kInt8, group_size, has_minimum};
}

constexpr WeightFormat Fp8Format(int64_t group_size) {
  return {WeightEncoding::kFp8, group_size, false};
}

// With a zero point for each group.
constexpr WeightFormat WithZeroPoints(WeightFormat format) {
  format.has_minimum = true;
  format.has_zero_points = true;
  return format;
}
// With scales, and minimums, of integers.
constexpr WeightFormat InBlocksOf(int64_t block_size, WeightFormat format) {
  format.block_size = block_size;
  return format;
}

// The narrowest format that holds values of both exactly: the more bits, the largest group that divides both,
// a minimum if one has it, blocks if one has them. kFloat if one is kFloat, or one kFp8 and the other not.
WeightFormat CommonWeightFormat(const WeightFormat& a, const WeightFormat& b);

// Of [rows, cols] values: their codes, and scales, minimums, zero points and units of 16 bits, integers in
// blocks of 8, scales of kFp8 of 32. What a backend takes is this and little more.
int64_t QuantizedBytes(const WeightFormat& format, int64_t rows, int64_t cols);

// "int4, groups of 32 with minimum in blocks of 256"; "int4, groups of 128 with zero point"; "fp8, groups of
// 128"; "float".
std::string DescribeWeightFormat(const WeightFormat& format);

}  // namespace tandem
