// The order of logits that sampling goes by, for .cu files.
#pragma once

#include <cstdint>

namespace tandem {

constexpr uint32_t kOrderOfNegativeInfinity = 0x007fffffU;

// Larger for larger logits, equal for equal ones, 0 for NaN.
__device__ __forceinline__ uint32_t OrderOf(float logit) {
  if (logit != logit) return 0;
  const uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 becomes +0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// order: not 0.
__device__ __forceinline__ float LogitOfOrder(uint32_t order) {
  return __uint_as_float((order & 0x80000000U) != 0 ? order & 0x7fffffffU : ~order);
}

__device__ __forceinline__ uint64_t KeyOf(float logit, int32_t token) {
  return static_cast<uint64_t>(OrderOf(logit)) << 32 | (0xffffffffU - static_cast<uint32_t>(token));
}

__device__ __forceinline__ float LogitOfKey(uint64_t key) {
  return LogitOfOrder(static_cast<uint32_t>(key >> 32));
}

__device__ __forceinline__ uint64_t ShuffleXor(uint64_t value, int distance) {
  return __shfl_xor_sync(~0U, static_cast<unsigned long long>(value), distance);
}

struct Maximum {
  __device__ __forceinline__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};
struct Sum {
  __device__ __forceinline__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

// Of the 32 lanes, in every lane. For both operations 0 changes nothing.
template <typename Operation>
__device__ __forceinline__ uint64_t ReduceWarp(uint64_t value, Operation operation) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = operation(value, ShuffleXor(value, distance));
  }
  return value;
}

}  // namespace tandem
