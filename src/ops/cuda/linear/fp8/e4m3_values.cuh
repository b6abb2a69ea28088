// Codes of E4M3 become numbers of the tensor core's types by bit tricks, exactly: exponent and mantissa move
// to their place, and a product with a power of two makes good for the other bias of the exponent, with
// subnormal codes too. For .cu files; compute capability 8.0.
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Of codes that are the high bytes of the halves of a word, whose low bytes are 0.
template <typename T>
__device__ __forceinline__ uint32_t ValuesOfHighBytes(uint32_t word) {
  constexpr bool kIsHalf = std::is_same_v<T, __half>;
  // fp16 has 5 bits of exponent, bf16 8: the code's 4 begin 1 or 4 bits further down. 2^8 and 2^120.
  constexpr uint32_t kScale = kIsHalf ? 0x5c005c00U : 0x7b807b80U;
  const uint32_t bits = ((word & 0x7f007f00U) >> (kIsHalf ? 1 : 4)) | (word & 0x80008000U);
  using Pair = std::conditional_t<kIsHalf, __half2, __nv_bfloat162>;
  const Pair values = __hmul2(*reinterpret_cast<const Pair*>(&bits), *reinterpret_cast<const Pair*>(&kScale));
  return *reinterpret_cast<const uint32_t*>(&values);
}

// Of the four bytes of a word: the first and the second, the third and the fourth.
template <typename T>
__device__ __forceinline__ uint2 ValuesOfE4M3(uint32_t word) {
  return make_uint2(ValuesOfHighBytes<T>(__byte_perm(word, 0, 0x1404)),
                    ValuesOfHighBytes<T>(__byte_perm(word, 0, 0x3424)));
}

#endif

}  // namespace tandem
