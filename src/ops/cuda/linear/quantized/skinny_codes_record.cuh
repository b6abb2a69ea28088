// What a warp of skinny_codes.cuh does with a record. For .cu files; compute capability 8.0.
#pragma once

#include <cstdint>

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/integer_rows.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// The codes of a record, and fragments of them.
template <typename Shape>
class RecordCodes {
 public:
  // The address of the lane's.
  __device__ __forceinline__ explicit RecordCodes(uint32_t from) {
#pragma unroll
    for (int i = 0; i < Shape::kWords; ++i) {
      const uint4 four = LoadShared(from + static_cast<uint32_t>(i * 512));
      words_[i * 4] = four.x;
      words_[i * 4 + 1] = four.y;
      words_[i * 4 + 2] = four.z;
      words_[i * 4 + 3] = four.w;
    }
  }

  // sums += codes of a group by x, times kTimes. group: of the slice; x of a piece: fragments of the slice.
  template <typename Fragments>
  __device__ __forceinline__ void AddGroup(int32_t (&sums)[Shape::kProducts][4], int group,
                                           const Fragments& x) const {
    constexpr CodeLayout kLayout = Shape::kLayout;
    if constexpr (kLayout.group_size == 16) {
      uint32_t upper = 0;
      const uint32_t lower = OfStep(group, &upper);
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
        const uint2 two = x(product, group / 2);
        MultiplyAddBytes(sums[product], lower, upper, group % 2 == 0 ? two.x : two.y);
      }
    } else if constexpr (kLayout.bits == 8) {
#pragma unroll
      for (int i = 0; i < kLayout.group_size / 32; ++i) {
        const int piece = group * (kLayout.group_size / 32) + i;
        uint32_t a[4];
        a[0] = OfStep(piece * 2, &a[1]);
        a[2] = OfStep(piece * 2 + 1, &a[3]);
        Add(sums, a, [&](int product) { return x(product, piece); });
      }
    } else if constexpr (!Shape::kNibblesApart) {
      const uint32_t lower = __byte_perm(words_[group * 2], words_[group * 2 + 1], 0x6420);
      const uint32_t upper = __byte_perm(words_[group * 2], words_[group * 2 + 1], 0x7531);
      const uint32_t a[4] = {lower << 4 & 0xf0f0f0f0U, upper << 4 & 0xf0f0f0f0U, lower, upper};
      Add(sums, a, [&](int product) { return x(product, group); });
    } else {
      int32_t low[Shape::kProducts][4] = {};
#pragma unroll
      for (int i = 0; i < kLayout.group_size / 64; ++i) {
        const int piece = group * (kLayout.group_size / 32) + i * 2;
        uint32_t a[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          a[j * 2] = __byte_perm(words_[(piece + j) * 2], words_[(piece + j) * 2 + 1], 0x6420);
          a[j * 2 + 1] = __byte_perm(words_[(piece + j) * 2], words_[(piece + j) * 2 + 1], 0x7531);
        }
        const uint32_t nibbles[4] = {a[0] & 0x0f0f0f0fU, a[1] & 0x0f0f0f0fU, a[2] & 0x0f0f0f0fU,
                                     a[3] & 0x0f0f0f0fU};
        Add(low, nibbles, [&](int product) { return x(product, piece); });
        Add(sums, a, [&](int product) { return x(product, piece + 1); });
      }
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[product][i] += low[product][i] * 16;
      }
    }
  }

 private:
  // Elements 2q, 2q + 1, 2q + 8 and 2q + 9 of a step for outputs octet and (upper) octet + 8.
  __device__ __forceinline__ uint32_t OfStep(int step, uint32_t* upper) const {
    uint32_t first;
    uint32_t second;
    if constexpr (Shape::kLayout.bits == 8) {
      first = words_[step * 2];
      second = words_[step * 2 + 1];
    } else {
      first = words_[step] & 0x0f0f0f0fU;
      second = words_[step] >> 4 & 0x0f0f0f0fU;
    }
    *upper = __byte_perm(first, second, 0x7531);
    return __byte_perm(first, second, 0x6420);
  }
  template <typename Fragments>
  __device__ __forceinline__ static void Add(int32_t (&sums)[Shape::kProducts][4], const uint32_t (&a)[4],
                                             const Fragments& x) {
#pragma unroll
    for (int product = 0; product < Shape::kProducts; ++product) {
      const uint2 b = x(product);
      MultiplyAddBytes(sums[product], a[0], a[1], a[2], a[3], b.x, b.y);
    }
  }

  uint32_t words_[Shape::kWords * 4];
};

// sums += a record's product, in units of x. codes, numbers: addresses of the lane's. x: fragments of the
// slice. sums_of_x: of its groups, those of the lane's first row.
template <typename Shape, typename Fragments>
__device__ __forceinline__ void AddRecord(float (&sums)[Shape::kSums], uint32_t codes, uint32_t numbers,
                                          const Fragments& x, const uint32_t* sums_of_x) {
  constexpr CodeLayout kLayout = Shape::kLayout;
  const RecordCodes<Shape> record(codes);
#pragma unroll
  for (int group = 0; group < Shape::kGroups; ++group) {
    int32_t products[Shape::kProducts][4] = {};
    record.AddGroup(products, group, x);
    uint2 pairs = {};
    if constexpr (kLayout.has_minimum) {
      pairs = LoadShared8(numbers + static_cast<uint32_t>(group * 8));
    } else {
      pairs.x = LoadShared4(numbers + static_cast<uint32_t>(group * 4));
    }
    const float2 scales = ValuesOfPair<__half>(pairs.x);
    const float2 minimums = ValuesOfPair<__half>(pairs.y);
#pragma unroll
    for (int row = 0; row < Shape::kRowsOfLane; ++row) {
      const uint32_t of_x = sums_of_x[group * Shape::kRows + row];
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        float& sum = sums[upper * Shape::kRowsOfLane + row];
        int32_t whole = Shape::kRows == 8 ? products[0][upper * 2 + row] * 256 +
                                                products[Shape::kProducts - 1][upper * 2 + row]
                                          : products[0][upper * 2] * 256 + products[0][upper * 2 + 1];
        if constexpr (!kLayout.has_minimum) whole += static_cast<int32_t>(of_x);
        sum = fmaf(upper == 0 ? scales.x : scales.y, static_cast<float>(whole), sum);
        if constexpr (kLayout.has_minimum) {
          sum = fmaf(upper == 0 ? minimums.x : minimums.y, __uint_as_float(of_x), sum);
        }
      }
    }
  }
}

#endif

}  // namespace tandem
