// Rows of x become integers for the tensor core's products of bytes. For .cu files; compute capability 8.0.
//
// An integer of 16 bits is 256 * high + low, two signed bytes that are multiplied apart.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

template <typename T>
using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <typename T>
__device__ __forceinline__ float2 ValuesOfPair(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
  }
}

// Of pairs, element by element, the larger magnitude of both; NaN if one is.
template <typename T>
__device__ __forceinline__ uint32_t LargerMagnitudes(uint32_t magnitudes, uint32_t pair) {
  using Pair = PairOf<T>;
  const Pair larger = __hmax2_nan(*reinterpret_cast<const Pair*>(&magnitudes),
                                  __habs2(*reinterpret_cast<const Pair*>(&pair)));
  return *reinterpret_cast<const uint32_t*>(&larger);
}

// What a part of a row is multiplied by to become integers, and what stands for one of these.
struct IntegerScale {
  float inverse = 0.0F;
  float unit = 0.0F;
};

// largest_pair: two magnitudes. The larger becomes `limit`. Where one is infinite or NaN the unit is NaN;
// below 1e-30, whose inverse fp32 may not hold, all integers are 0.
template <typename T>
__device__ __forceinline__ IntegerScale MakeIntegerScale(uint32_t largest_pair, float limit) {
  constexpr float kTiny = 1e-30F;
  const float2 two = ValuesOfPair<T>(largest_pair);
  const bool is_finite = fabsf(two.x) < std::numeric_limits<float>::infinity() &&
                         fabsf(two.y) < std::numeric_limits<float>::infinity();
  const float largest = fmaxf(two.x, two.y);
  IntegerScale scale;
  if (is_finite && largest > kTiny) scale.inverse = limit / largest;
  scale.unit = is_finite ? largest * (1.0F / limit) : std::numeric_limits<float>::quiet_NaN();
  return scale;
}

// i + kIntegerBase of an integer of 16 bits is a float whose low 16 bits are i + 128.
constexpr float kIntegerBase = 12582912.0F + 128.0F;

// Bytes of four integers, the first in the lowest byte.
struct BytesOf4 {
  uint32_t high = 0;
  uint32_t low = 0;
};

// Of numbers i + kIntegerBase, |i| <= 32,512.
__device__ __forceinline__ BytesOf4 SplitIntegers(float i0, float i1, float i2, float i3) {
  const uint32_t first = __byte_perm(__float_as_uint(i0), __float_as_uint(i1), 0x5410);
  const uint32_t second = __byte_perm(__float_as_uint(i2), __float_as_uint(i3), 0x5410);
  // A low byte is one from -128 on, plus 128.
  return {__byte_perm(first, second, 0x7531), __byte_perm(first, second, 0x6420) ^ 0x80808080U};
}

#endif

}  // namespace tandem
