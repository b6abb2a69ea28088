#include "base/dtype.h"

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace tandem {

void FailBytesOfElement(DType dtype) {
  TANDEM_CHECK(false, "an element of {} has no whole bytes", DTypeName(dtype));
}

float F16ToF32(fp16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  uint32_t exponent = (value >> 10) & 0x1fU;
  uint32_t mantissa = value & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    // Subnormal half: normalize, every one is a normal float.
    exponent = 1;
    while ((mantissa & 0x400U) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    mantissa &= 0x3ffU;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

fp16_t F32ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;
  if (magnitude >= 0x47800000U) return sign | 0x7c00U;
  if (magnitude < 0x38800000U) {
    // Subnormal half: adding 0.5 aligns the wanted bits at the end of the mantissa, rounding as it goes.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3f000000U);
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  if (rounded >= 0x47800000U) return sign | 0x7c00U;
  return sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13);
}

}  // namespace tandem
