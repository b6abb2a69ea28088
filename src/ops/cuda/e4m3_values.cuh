// Codes of E4M3 become numbers of the tensor core's types by bit tricks, exactly: exponent and mantissa move
// to their place, and a product with a power of two makes good for the other bias of the exponent, with
// subnormal codes too. For .cu files; fp16 on any compute capability, bf16 on 8.0.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem {

// Any compute capability.
__device__ __forceinline__ float ValueOfE4M3(uint8_t code) {
  const auto bits = static_cast<unsigned short>((code & 0x80U) << 8 | (code & 0x7fU) << 7);
  return __half2float(__ushort_as_half(bits)) * 256.0F;
}

// Of codes that are the high bytes of the halves of a word, whose low bytes are 0: their values times 2^-8
// for fp16, 2^-120 for bf16. fp16 has 5 bits of exponent, bf16 8: the code's 4 begin 1 or 4 bits further
// down.
template <typename T>
__device__ __forceinline__ uint32_t MovedHighBytes(uint32_t word) {
  return ((word & 0x7f007f00U) >> (std::is_same_v<T, __half> ? 1 : 4)) | (word & 0x80008000U);
}

template <typename T>
__device__ __forceinline__ uint32_t ValuesOfHighBytes(uint32_t word) {
  constexpr bool kIsHalf = std::is_same_v<T, __half>;
  constexpr uint32_t kScale = kIsHalf ? 0x5c005c00U : 0x7b807b80U;  // 2^8, 2^120
  const uint32_t bits = MovedHighBytes<T>(word);
  using Pair = std::conditional_t<kIsHalf, __half2, __nv_bfloat162>;
  const Pair values = __hmul2(*reinterpret_cast<const Pair*>(&bits), *reinterpret_cast<const Pair*>(&kScale));
  return *reinterpret_cast<const uint32_t*>(&values);
}

// Selectors of __byte_perm with 0: two bytes of a word as the high bytes of halves.
constexpr unsigned kLowBytesUp = 0x1404;
constexpr unsigned kHighBytesUp = 0x3424;

// Of the four bytes of a word: the first and the second, the third and the fourth.
template <typename T>
__device__ __forceinline__ uint2 ValuesOfE4M3(uint32_t word) {
  return make_uint2(ValuesOfHighBytes<T>(__byte_perm(word, 0, kLowBytesUp)),
                    ValuesOfHighBytes<T>(__byte_perm(word, 0, kHighBytesUp)));
}

// The same of fp16, by the instruction that compute capability 8.9 has for it.
__device__ __forceinline__ uint2 HalvesOfE4M3(uint32_t word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint2 values;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; "
      "cvt.rn.f16x2.e4m3x2 %1, high;}"
      : "=r"(values.x), "=r"(values.y)
      : "r"(word));
  return values;
#else
  return ValuesOfE4M3<__half>(word);
#endif
}

}  // namespace tandem
