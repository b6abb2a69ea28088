// Numbers in the blocks of quantized tensors. Everything is in an unnamed namespace: files compiled for other
// instruction sets include it (conversion_kernels.h says more).
#pragma once

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): see above

inline uint32_t FloatBits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
inline float BitsFloat(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7fffU;
  const uint32_t shifted = magnitude << 13;
  // Subnormal halves have the value mantissa * 2^-24.
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t normal = shifted + (112U << 23);
  const uint32_t infinite_or_nan = shifted | 0x7f800000U;
  uint32_t bits = magnitude < 0x400U ? FloatBits(subnormal) : normal;
  bits = magnitude >= 0x7c00U ? infinite_or_nan : bits;
  return BitsFloat(bits | sign);
}

inline uint16_t LoadU16(const uint8_t* src) {
  uint16_t value = 0;
  std::memcpy(&value, src, sizeof(value));
  return value;
}
inline uint32_t LoadU32(const uint8_t* src) {
  uint32_t value = 0;
  std::memcpy(&value, src, sizeof(value));
  return value;
}
inline float LoadHalf(const uint8_t* src) {
  return HalfToFloat(LoadU16(src));
}

// Eight 6-bit scales and minima in 12 bytes: of groups 0..3 in the low six bits of bytes 0..3 and 4..7; of
// groups 4..7 in the nibbles of bytes 8..11, their top two bits in the top bits of bytes 0..3 and 4..7.
struct GroupScales {
  float scale[8];
  float minimum[8];
};
inline GroupScales UnpackGroupScales(const uint8_t* packed, float scale, float minimum) {
  GroupScales result;
  for (int g = 0; g < 4; ++g) {
    result.scale[g] = scale * static_cast<float>(packed[g] & 63);
    result.minimum[g] = minimum * static_cast<float>(packed[g + 4] & 63);
    result.scale[g + 4] = scale * static_cast<float>((packed[g + 8] & 15) | ((packed[g] >> 2) & 48));
    result.minimum[g + 4] = minimum * static_cast<float>((packed[g + 8] >> 4) | ((packed[g + 4] >> 2) & 48));
  }
  return result;
}

}  // namespace
}  // namespace tandem
