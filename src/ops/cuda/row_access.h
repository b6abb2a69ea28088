// How the row-wise kernels read and write elements: conversions, runs of elements in wide accesses, and the
// choice of a kernel by element type. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "base/round_up.h"
#include "ops/cuda/fragments.cuh"
#include "ops/cuda/row_alignment.h"

namespace tandem {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

template <typename T>
__device__ __forceinline__ float ToFloat(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __bfloat162float(value);
  } else {
    return __half2float(value);
  }
}

// To nearest even.
template <typename T>
__device__ __forceinline__ T RoundTo(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(value);
  } else {
    return __float2half_rn(value);
  }
}

// kWidth elements in registers as they lie in memory. kWidth is 8 (addresses are multiples of 16 bytes), 4
// (of the run's size: 8 or 16 bytes) or 1. With fp32, 4 is what lets the lanes of a warp fill whole sectors.
template <typename T, int kWidth>
struct Run {
  static_assert(kWidth == 8 || kWidth == 4);
  static constexpr int kWords = kWidth * static_cast<int>(sizeof(T)) / 4;
  uint32_t words[kWords];

  __device__ __forceinline__ void Load(const T* from) {
    if constexpr (kWords == 2) {
      const uint2 vector = *reinterpret_cast<const uint2*>(from);
      words[0] = vector.x;
      words[1] = vector.y;
    } else {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i) {
        const uint4 vector = reinterpret_cast<const uint4*>(from)[i];
        words[4 * i] = vector.x;
        words[4 * i + 1] = vector.y;
        words[4 * i + 2] = vector.z;
        words[4 * i + 3] = vector.w;
      }
    }
  }
  __device__ __forceinline__ void Store(T* to) const {
    if constexpr (kWords == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i) {
        reinterpret_cast<uint4*>(to)[i] =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
      }
    }
  }
  __device__ __forceinline__ void Get(float (&values)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        values[i] = __uint_as_float(words[i]);
      } else if constexpr (std::is_same_v<T, Bf16>) {
        const uint32_t word = words[i / 2];
        values[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
      } else {
        values[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16))));
      }
    }
  }
  __device__ __forceinline__ void Set(const float (&values)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        words[i] = __float_as_uint(values[i]);
      } else {
        words[i] = PackPair<T>(values[2 * i], values[2 * i + 1]);
      }
    }
  }
};

template <typename T>
struct Run<T, 1> {
  T value;

  __device__ __forceinline__ void Load(const T* from) { value = *from; }
  __device__ __forceinline__ void Store(T* to) const { *to = value; }
  __device__ __forceinline__ void Get(float (&values)[1]) const { values[0] = ToFloat(value); }
  __device__ __forceinline__ void Set(const float (&values)[1]) { value = RoundTo<T>(values[0]); }
};

template <typename T>
struct ElementType {
  using Type = T;
};

// function(ElementType<T>{}) for the T of dtype, which is a float type.
template <typename Function>
void WithElementType(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(ElementType<float>{});
    case DType::kBF16:
      return function(ElementType<Bf16>{});
    case DType::kF16:
      return function(ElementType<Fp16>{});
    default:
      break;
  }
  TANDEM_CHECK(false, "{} is no float type", DTypeName(dtype));
}

// function(ElementType<From>{}, ElementType<To>{}) where both are the same, or one of them is fp32 and
// kFromF32 (From is it) or kToF32 (To is it) allows that.
template <bool kFromF32, bool kToF32, typename Function>
void WithElementTypes(DType from, DType to, Function&& function) {
  if (from == to) {
    return WithElementType(from, [&](auto type) { function(type, type); });
  }
  if constexpr (kFromF32) {
    if (from == DType::kF32 && to == DType::kBF16) return function(ElementType<float>{}, ElementType<Bf16>{});
    if (from == DType::kF32 && to == DType::kF16) return function(ElementType<float>{}, ElementType<Fp16>{});
  }
  if constexpr (kToF32) {
    if (to == DType::kF32 && from == DType::kBF16) return function(ElementType<Bf16>{}, ElementType<float>{});
    if (to == DType::kF32 && from == DType::kF16) return function(ElementType<Fp16>{}, ElementType<float>{});
  }
  TANDEM_CHECK(false, "no kernel from {} to {}", DTypeName(from), DTypeName(to));
}

inline unsigned CeilDivide(int64_t a, int64_t b) {
  return static_cast<unsigned>(DivideUp(a, b));
}

}  // namespace tandem
