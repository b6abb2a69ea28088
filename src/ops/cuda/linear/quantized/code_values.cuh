// Codes become numbers of the tensor core's types by bit tricks: a code in the low bits of a number whose
// unit is 1 there, less that number. Exact. For .cu files; compute capability 8.0.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Two numbers, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t Subtract(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const Pair difference = __hsub2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&difference);
}

template <typename T>
__device__ __forceinline__ uint32_t TwoOnes() {
  return std::is_same_v<T, __half> ? 0x3c003c00U : 0x3f803f80U;
}

// A number whose last place is 1, so that a code in its low bits is added to it: 128 in bf16, 1024 in fp16.
template <typename T>
__device__ __forceinline__ constexpr float BaseOf4Bits() {
  return std::is_same_v<T, __half> ? 1024.0F : 128.0F;
}
template <typename T>
__device__ __forceinline__ constexpr uint32_t TwoBasesOf4Bits() {
  return std::is_same_v<T, __half> ? 0x64006400U : 0x43004300U;
}

// The fragments a0 to a3 of a step, from its word of 4-bit codes (code_layout.h): codes plus BaseOf4Bits.
template <typename T>
__device__ __forceinline__ void BasedValuesOf4Bits(uint32_t (&fragments)[4], uint32_t word) {
  constexpr uint32_t kBase = TwoBasesOf4Bits<T>();
  constexpr uint32_t kMask = 0x000f000fU;
  fragments[0] = (word & kMask) | kBase;
  fragments[2] = (word >> 4 & kMask) | kBase;
  fragments[1] = (word >> 8 & kMask) | kBase;
  fragments[3] = (word >> 12 & kMask) | kBase;
}

// The same, codes less kZeroCode.
template <typename T, int kZeroCode>
__device__ __forceinline__ void ValuesOf4Bits(uint32_t (&fragments)[4], uint32_t word) {
  constexpr uint32_t kZero = TwoBasesOf4Bits<T>() + kZeroCode * 0x00010001U;
  BasedValuesOf4Bits<T>(fragments, word);
#pragma unroll
  for (uint32_t& fragment : fragments) fragment = Subtract<T>(fragment, kZero);
}

// Of bytes kFirst and kFirst + 1 of a word.
template <typename T, int kZeroCode, int kFirst>
__device__ __forceinline__ uint32_t ValuesOfBytes(uint32_t word) {
  if constexpr (std::is_same_v<T, __half>) {
    constexpr uint32_t kZero = 0x64006400U + kZeroCode * 0x00010001U;
    // {byte, 0x64} is 1024 + byte.
    return Subtract<T>(__byte_perm(word, 0x64646464U, kFirst == 0 ? 0x4140 : 0x4342), kZero);
  } else {
    // bf16 has too few bits for that, but holds the difference: fp32 in between, where 0x4b000000 is 2^23.
    constexpr float kZero = 8388608.0F + kZeroCode;
    const float low = __uint_as_float(__byte_perm(word, 0x4b000000U, 0x7440 | kFirst)) - kZero;
    const float high = __uint_as_float(__byte_perm(word, 0x4b000000U, 0x7440 | (kFirst + 1))) - kZero;
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
  }
}

// The fragments a0 to a3 of a step, from its words of 8-bit codes.
template <typename T, int kZeroCode>
__device__ __forceinline__ void ValuesOf8Bits(uint32_t (&fragments)[4], uint32_t first, uint32_t second) {
  fragments[0] = ValuesOfBytes<T, kZeroCode, 0>(first);
  fragments[1] = ValuesOfBytes<T, kZeroCode, 2>(first);
  fragments[2] = ValuesOfBytes<T, kZeroCode, 0>(second);
  fragments[3] = ValuesOfBytes<T, kZeroCode, 2>(second);
}

#endif

}  // namespace tandem
