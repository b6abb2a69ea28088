// Codes become numbers of the tensor core's types by bit tricks, exactly: a code in the low bits of a number
// whose unit is 1 there, less that number; or a code that is a small number by itself. For .cu files; fp16 on
// any compute capability, bf16 and small numbers on 8.0.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem {

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

// (a & b) | c or (a & b) ^ c in one instruction, which has room for one immediate: the compiler makes two.
__device__ __forceinline__ uint32_t AndOr(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
__device__ __forceinline__ uint32_t AndXor(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
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
  fragments[0] = AndOr(word, kMask, kBase);
  fragments[2] = AndOr(word >> 4, kMask, kBase);
  fragments[1] = AndOr(word >> 8, kMask, kBase);
  fragments[3] = AndOr(word >> 12, kMask, kBase);
}

// The same, codes less kZeroCode.
template <typename T, int kZeroCode>
__device__ __forceinline__ void ValuesOf4Bits(uint32_t (&fragments)[4], uint32_t word) {
  constexpr uint32_t kZero = TwoBasesOf4Bits<T>() + kZeroCode * 0x00010001U;
  BasedValuesOf4Bits<T>(fragments, word);
#pragma unroll
  for (uint32_t& fragment : fragments) fragment = Subtract<T>(fragment, kZero);
}

// Of a word's bytes 0 and 2, or 1 and 3 (kUpper): codes less 128.
template <typename T, bool kUpper>
__device__ __forceinline__ uint32_t CenteredBytes(uint32_t word) {
  if constexpr (std::is_same_v<T, __half>) {
    // {byte, 0x64} is 1024 + byte.
    return Subtract<T>(__byte_perm(word, 0x64646464U, kUpper ? 0x4341 : 0x4240), 0x64006400U + 0x00800080U);
  } else {
    // bf16 has 7 bits for a code's lower ones, on 128; its highest says whether 256 or 128 are to be taken.
    const uint32_t bytes = kUpper ? word >> 8 : word;
    return Subtract<T>(AndOr(bytes, 0x007f007fU, 0x43004300U), AndXor(bytes, 0x00800080U, 0x43804380U));
  }
}

// The fragments a0 to a3 of a step, from its words of 8-bit codes: codes less 128.
template <typename T>
__device__ __forceinline__ void CenteredValuesOf8Bits(uint32_t (&fragments)[4], uint32_t first,
                                                      uint32_t second) {
  fragments[0] = CenteredBytes<T, false>(first);
  fragments[1] = CenteredBytes<T, true>(first);
  fragments[2] = CenteredBytes<T, false>(second);
  fragments[3] = CenteredBytes<T, true>(second);
}

// The same, codes less kZeroCode: 128 or 0.
template <typename T, int kZeroCode>
__device__ __forceinline__ void ValuesOf8Bits(uint32_t (&fragments)[4], uint32_t first, uint32_t second) {
  static_assert(kZeroCode == 0 || kZeroCode == 128);
  CenteredValuesOf8Bits<T>(fragments, first, second);
  if constexpr (kZeroCode == 0) {
    constexpr uint32_t kMinus128 = std::is_same_v<T, __half> ? 0xd800d800U : 0xc300c300U;
#pragma unroll
    for (uint32_t& fragment : fragments) fragment = Subtract<T>(fragment, kMinus128);
  }
}

// Bits of a number up to the lowest of its exponent are worth as much in subnormal numbers as in the first
// normal ones: below 2^11 (fp16) or 2^8 (bf16) they are an integer times the smallest number. A code moved
// there is a number, with nothing to be taken away. Codes lie as high as they can: the tensor core aligns
// what it adds by exponents, that of subnormal numbers being the lowest, and cuts off what is 2^-24 of the
// largest.
template <typename T>
struct SmallNumbers {
  static constexpr bool kIsHalf = std::is_same_v<T, __half>;
  static constexpr int kShift = kIsHalf ? 3 : 0;
  // Codes of 4 bits in the low nibbles of bytes, 16 times those in the high ones, codes of 8 bits.
  static constexpr uint32_t kLow = 0x000f000fU << kShift;
  static constexpr uint32_t kHigh = 0x00f000f0U << kShift;
  static constexpr uint32_t kByte = 0x00ff00ffU << kShift;
  // The first normal number, twice, and its inverse: 8 times a code of 4 bits that is masked by kHigh, 128
  // times one of 8 bits.
  static constexpr uint32_t kTwoOnes = kIsHalf ? 0x04000400U : 0x00800080U;
  static constexpr float kInverse = kIsHalf ? 0x1p14F : 0x1p126F;

  // What to mask: bytes 0 and 2, bytes 1 and 3 (code_layout.h: outputs r, r + 8).
  static __device__ __forceinline__ uint32_t First(uint32_t word) { return word << kShift; }
  static __device__ __forceinline__ uint32_t Second(uint32_t word) { return word >> (8 - kShift); }
};

}  // namespace tandem
