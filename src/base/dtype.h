// Element types of tensors, and conversions of the two 16-bit floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32 };

constexpr size_t DTypeSize(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
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
  }
  return "?";
}

// Raw bfloat16 bits. Round to nearest even; NaN stays NaN.
using bf16_t = uint16_t;

inline bf16_t F32ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16_t>((bits >> 16) | 0x40U);
  return static_cast<bf16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float BF16ToF32(bf16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Raw IEEE half bits.
using fp16_t = uint16_t;
float F16ToF32(fp16_t value);
fp16_t F32ToF16(float value);

}  // namespace tandem
