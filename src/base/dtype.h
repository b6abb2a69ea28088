// Element types of tensors, and conversions of the two 16-bit floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

// kI8, kU8, kI4: quantized numbers, whose scales lie elsewhere. kF8E4M3, kF8E5M2: bits of exponent and
// mantissa.
enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI8, kU8, kF8E4M3, kF8E5M2, kI4 };

// The one place that says how wide an element is.
constexpr int DTypeBits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 8;
    case DType::kI4:
      return 4;
  }
  return 0;
}

// Aborts: an element of this type is less than a byte.
[[noreturn]] void FailBytesOfElement(DType dtype);

// Bytes of one element. CHECKs that they are whole.
constexpr size_t DTypeSize(DType dtype) {
  const int bits = DTypeBits(dtype);
  if (bits % 8 != 0) [[unlikely]]
    FailBytesOfElement(dtype);
  return static_cast<size_t>(bits / 8);
}

// Bytes of a row of count elements, which starts at a whole byte.
constexpr size_t BytesFor(DType dtype, int64_t count) {
  return (static_cast<size_t>(count) * static_cast<size_t>(DTypeBits(dtype)) + 7) / 8;
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "int32";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kF8E4M3:
      return "fp8_e4m3";
    case DType::kF8E5M2:
      return "fp8_e5m2";
    case DType::kI4:
      return "int4";
  }
  return "?";
}

// What weights and activations consist of: fp32, fp16 or bf16.
constexpr bool IsFloatType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Raw bfloat16 bits. Round to nearest even; NaN stays NaN.
using bf16_t = uint16_t;

constexpr bf16_t F32ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16_t>((bits >> 16) | 0x40U);
  return static_cast<bf16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float BF16ToF32(bf16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Raw bits of a sign, four of exponent (bias 7) and three of mantissa. No infinities; +-127 are NaN.
using fp8_e4m3_t = uint8_t;

constexpr float E4M3ToF32(fp8_e4m3_t value) {
  const uint32_t sign = (value & 0x80U) << 24;
  const uint32_t magnitude = value & 0x7fU;
  constexpr uint32_t kNan = 0x7fU;
  if (magnitude == kNan) return std::bit_cast<float>(sign | 0x7fc00000U);
  // A normal number's exponent and mantissa move to their places; a subnormal one's are small integers.
  const uint32_t bits = magnitude >= 8 ? (magnitude << 20) + (120U << 23)
                                       : std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9F);
  return std::bit_cast<float>(sign | bits);
}

constexpr float kLargestE4M3 = 448.0F;

// Round to nearest even, to +-448 beyond that; NaN stays NaN.
constexpr fp8_e4m3_t F32ToE4M3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<fp8_e4m3_t>(sign | 0x7fU);
  constexpr float kLeastNormal = 0x1p-6F;
  if (magnitude < std::bit_cast<uint32_t>(kLeastNormal)) {
    constexpr float kUnitAtEnd = 0x1p14F;  // the last bit of such a float is a subnormal's unit, 2^-9
    const float sum = std::bit_cast<float>(magnitude) + kUnitAtEnd;
    return static_cast<fp8_e4m3_t>(sign |
                                   (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(kUnitAtEnd)));
  }
  const uint32_t kept =
      magnitude < std::bit_cast<uint32_t>(kLargestE4M3) ? magnitude : std::bit_cast<uint32_t>(kLargestE4M3);
  const uint32_t rounded = (kept + 0x7ffffU + (kept >> 20 & 1U)) >> 20;
  return static_cast<fp8_e4m3_t>(sign | (rounded - (120U << 3)));
}

// Raw IEEE half bits.
using fp16_t = uint16_t;
float F16ToF32(fp16_t value);
fp16_t F32ToF16(float value);

}  // namespace tandem
