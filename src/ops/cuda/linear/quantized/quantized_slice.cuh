// What a block of quantized_kernel.cuh, or quantized_direct.cuh, makes of a slice that has arrived in shared
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kQuantizedThreads = 256;
constexpr int kQuantizedWarps = kQuantizedThreads / 32;
constexpr int kBlockOutputs = 2 * kCodePanelOutputs;
constexpr int kBlockRecords = kBlockOutputs / kRecordOutputs;
// Of a block's sums in shared memory, [rows][outputs]: a warp's stores of them meet no bank twice.
constexpr int kBlockSumsPitch = kBlockOutputs + 4;

// Of records, all that a kernel must know.
template <int kBits, int kGroupSize, bool kHasMinimum>
struct RecordFormat {
  static constexpr CodeLayout kLayout = {kBits, kGroupSize, kHasMinimum, 0};
};

// How the warps of a block divide its outputs and rows. kBlocksPerSm: what registers and shared memory are
// to leave room for.
template <int kWarpRecords_, int kWarpRowTiles_, int kRowWarps_, int kBlocksPerSm_, int kSharedBudget_>
struct BlockTiling {
  static constexpr int kWarpRecords = kWarpRecords_;    // of 16 outputs, of a warp
  static constexpr int kWarpRowTiles = kWarpRowTiles_;  // of 8 rows, of a warp
  static constexpr int kRowWarps = kRowWarps_;          // that have the same outputs
  static constexpr int kOutputWarps = kQuantizedWarps / kRowWarps_;
  static constexpr int kRows = kRowWarps_ * kWarpRowTiles_ * 8;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kSharedBudget = kSharedBudget_;
  // Whether each warp sums x up itself, rather than one for all: those of few rows would wait for it.
  static constexpr bool kSumsItself = kWarpRecords == 1;
  static_assert(kOutputWarps * kWarpRecords == kBlockRecords);
};

// What lies where in shared memory. After the products the sums take the place of the ring.
template <typename Format, typename Tiling>
struct SharedPlan {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  static constexpr int kRecordsBytes = kBlockRecords * kRecordBytes;
  // Of a row of x. The 16 bytes behind it keep neighbours off each other's banks.
  static constexpr int kXPitch = kLayout.slice_size() * 2 + 16;
  static constexpr int kXBytes = Tiling::kRows * kXPitch;
  static constexpr int kStageBytes = kRecordsBytes + kXBytes;
  // Sums of x for each group and row of two stages.
  static constexpr bool kHasSumsOfX = kLayout.has_minimum && !Tiling::kSumsItself;
  static constexpr int kSumsOfX = kHasSumsOfX ? kLayout.groups_per_slice() * Tiling::kRows : 0;
  static constexpr int kSumsOfXBytes = 2 * kSumsOfX * 4;
  static constexpr int kMinDepth = 3;
  static constexpr int kMaxDepth = 8;
  static constexpr int kFitting = (Tiling::kSharedBudget - kSumsOfXBytes) / kStageBytes;
  static constexpr int kDepth = std::clamp(kFitting, kMinDepth, kMaxDepth);
  static constexpr int kSumsBytes = Tiling::kRows * kBlockSumsPitch * 4;
  static constexpr int kBytes = std::max(kDepth * kStageBytes + kSumsOfXBytes, kSumsBytes);
  static_assert(kStageBytes % 16 == 0);
};

__device__ __forceinline__ float2 TwoFloats(uint32_t two_halves) {
  return __half22float2(*reinterpret_cast<const __half2*>(&two_halves));
}

// One slice that has arrived: where its parts are, and what a lane holds of it.
template <typename T, typename Format, typename Tiling>
struct SliceProduct {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kXPitch = SharedPlan<Format, Tiling>::kXPitch;
  static constexpr int kSteps = kLayout.slice_size() / 16;
  // Groups of 16 are a step each; x comes in quanta of two steps.
  static constexpr bool kStepGroups = kLayout.group_size == 16;
  static constexpr int kStepsPerGroup = kLayout.group_size / 16;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kChunks = kLayout.code_bytes() / 512;
  static constexpr int kNumbers = kLayout.numbers_per_group();
  // A span is what is taken from codes to sums at once: a group, or the two groups of a quantum.
  static constexpr int kSpanSteps = kStepGroups ? 2 : kStepsPerGroup;
  static constexpr int kSpanGroups = kStepGroups ? 2 : 1;
  // Sums that steps are added to by turns. Few sums would wait for each other.
  static constexpr int kChains = kStepGroups || Tiling::kWarpRecords * Tiling::kWarpRowTiles <= 2 ? 2 : 1;
  using Products = float[Tiling::kWarpRecords][Tiling::kWarpRowTiles][kChains][4];
  // Whether each warp sums x up by products with ones, rather than one for all.
  static constexpr bool kSumsItself = Tiling::kSumsItself && kLayout.has_minimum;
  using XSums = float[kSumsItself ? Tiling::kWarpRowTiles : 1][kChains][4];
  // Codes stay what the bit trick makes of them, code plus base; the minimum takes base times scale away.
  static constexpr bool kKeepsBase =
      kLayout.bits == 4 && kLayout.has_minimum && std::is_same_v<T, __nv_bfloat16>;

  // Of a tile of 8 rows of x, the fragments {b0, b1} of steps 2 * quantum and the next.
  static __device__ __forceinline__ uint4 LoadX(uint32_t x, int row_tile, int quantum, int lane) {
    return LoadMatrices(
        x + static_cast<uint32_t>((row_tile * 8 + lane % 8) * kXPitch + quantum * 64 + lane / 8 * 16));
  }

  static __device__ __forceinline__ void Values(uint32_t (&fragments)[4], const uint4 (&words)[kChunks],
                                                int step) {
    if constexpr (kLayout.bits == 4) {
      const uint4& chunk = words[step / 4];
      const int word = step % 4;
      const uint32_t codes = word == 0 ? chunk.x : word == 1 ? chunk.y : word == 2 ? chunk.z : chunk.w;
      if constexpr (kKeepsBase) {
        BasedValuesOf4Bits<T>(fragments, codes);
      } else {
        ValuesOf4Bits<T, kLayout.zero_code()>(fragments, codes);
      }
    } else {
      const uint4& chunk = words[step / 2];
      if (step % 2 == 0) {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.x, chunk.y);
      } else {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.z, chunk.w);
      }
    }
  }

  // Adds the products of a span of groups, times their scales, to the sums. products: [record][row
  // tile][chain]; x_sums: sums of x, where the warp has them itself.
  static __device__ __forceinline__ void AddSpan(
      float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4], const Products& products,
      const XSums& x_sums, uint32_t records, const float* sums_of_x, int span, int lane) {
#pragma unroll
    for (int g = 0; g < kSpanGroups; ++g) {
      const int group = span * kSpanGroups + g;
      float2 scales[Tiling::kWarpRecords];    // of r and r + 8
      float2 minimums[Tiling::kWarpRecords];  // only with minimum
#pragma unroll
      for (int i = 0; i < Tiling::kWarpRecords; ++i) {
        const int at = (lane / 4 * kGroups + group) * kNumbers * 4;
        const uint32_t from =
            records + static_cast<uint32_t>(i * kLayout.record_bytes() + kLayout.code_bytes() + at);
        if constexpr (kLayout.has_minimum) {
          const uint2 both = LoadShared8(from);
          scales[i] = TwoFloats(both.x);
          minimums[i] = TwoFloats(both.y);
          if constexpr (kKeepsBase) {
            minimums[i].x = fmaf(scales[i].x, -BaseOf4Bits<T>(), minimums[i].x);
            minimums[i].y = fmaf(scales[i].y, -BaseOf4Bits<T>(), minimums[i].y);
          }
        } else {
          scales[i] = TwoFloats(LoadShared4(from));
        }
      }
#pragma unroll
      for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
        float2 of_x = make_float2(0.0F, 0.0F);  // of the rows of this lane's results
        if constexpr (kSumsItself) {
          of_x = make_float2(x_sums[tile][g][0], x_sums[tile][g][1]);
          if constexpr (kSpanGroups < kChains) {
            of_x.x += x_sums[tile][1][0];
            of_x.y += x_sums[tile][1][1];
          }
        } else if constexpr (kLayout.has_minimum) {
          of_x =
              *reinterpret_cast<const float2*>(sums_of_x + group * Tiling::kRows + tile * 8 + lane % 4 * 2);
        }
#pragma unroll
        for (int i = 0; i < Tiling::kWarpRecords; ++i) {
          float(&to)[4] = sums[i][tile];
          float product[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            product[j] = products[i][tile][g][j];
            if constexpr (kSpanGroups < kChains) product[j] += products[i][tile][1][j];
          }
          to[0] = fmaf(scales[i].x, product[0], to[0]);
          to[1] = fmaf(scales[i].x, product[1], to[1]);
          to[2] = fmaf(scales[i].y, product[2], to[2]);
          to[3] = fmaf(scales[i].y, product[3], to[3]);
          if constexpr (kLayout.has_minimum) {
            to[0] = fmaf(minimums[i].x, of_x.x, to[0]);
            to[1] = fmaf(minimums[i].x, of_x.y, to[1]);
            to[2] = fmaf(minimums[i].y, of_x.x, to[2]);
            to[3] = fmaf(minimums[i].y, of_x.y, to[3]);
          }
        }
      }
    }
  }

  // records: of the warp's first; sums_of_x: [groups][rows], of the warp's first row.
  static __device__ __forceinline__ void Run(float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4],
                                             uint32_t records, uint32_t x, int first_row_tile,
                                             const float* sums_of_x, int lane) {
    uint4 words[Tiling::kWarpRecords][kChunks];
#pragma unroll
    for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        words[i][chunk] =
            LoadShared(records + static_cast<uint32_t>(i * kLayout.record_bytes() + chunk * 512 + lane * 16));
      }
    }
    [[maybe_unused]] const uint32_t ones = TwoOnes<T>();
#pragma unroll
    for (int span = 0; span < kSteps / kSpanSteps; ++span) {
      Products products = {};
      XSums x_sums = {};
#pragma unroll
      for (int quantum = span * kSpanSteps / 2; quantum < (span + 1) * kSpanSteps / 2; ++quantum) {
        uint32_t fragments[2][Tiling::kWarpRecords][4];
        uint4 of_x[Tiling::kWarpRowTiles];
#pragma unroll
        for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
          of_x[tile] = LoadX(x, first_row_tile + tile, quantum, lane);
        }
#pragma unroll
        for (int i = 0; i < Tiling::kWarpRecords; ++i) {
          Values(fragments[0][i], words[i], 2 * quantum);
          Values(fragments[1][i], words[i], 2 * quantum + 1);
        }
        // Neighbouring products have different sums: none waits for the one before it.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int chain = half * (kChains - 1);
#pragma unroll
          for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
            const uint32_t b0 = half == 0 ? of_x[tile].x : of_x[tile].z;
            const uint32_t b1 = half == 0 ? of_x[tile].y : of_x[tile].w;
#pragma unroll
            for (int i = 0; i < Tiling::kWarpRecords; ++i) {
              const auto& values = fragments[half][i];
              MultiplyAdd<T>(products[i][tile][chain], values[0], values[1], values[2], values[3], b0, b1);
            }
            if constexpr (kSumsItself) MultiplyAdd<T>(x_sums[tile][chain], ones, ones, ones, ones, b0, b1);
          }
        }
      }
      AddSpan(sums, products, x_sums, records, sums_of_x, span, lane);
    }
  }

  // sums_of_x[groups][rows] of a slice, by products with ones: exact terms, in fp32. All warps.
  static __device__ __forceinline__ void SumX(float* sums_of_x, uint32_t x, int warp, int lane) {
    const uint32_t ones = TwoOnes<T>();
    for (int tile = warp; tile < Tiling::kRows / 8; tile += kQuantizedWarps) {
      float products[kGroups][4] = {};
      float second[kGroups][4] = {};  // of every other step, so that none waits for the one before it
#pragma unroll
      for (int quantum = 0; quantum < kSteps / 2; ++quantum) {
        const uint4 of_x = LoadX(x, tile, quantum, lane);
        MultiplyAdd<T>(products[2 * quantum / kStepsPerGroup], ones, ones, ones, ones, of_x.x, of_x.y);
        MultiplyAdd<T>(second[(2 * quantum + 1) / kStepsPerGroup], ones, ones, ones, ones, of_x.z, of_x.w);
      }
      // All outputs of this product are the same: those of lanes 0 to 3 are stored.
      if (lane < 4) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          *reinterpret_cast<float2*>(sums_of_x + g * Tiling::kRows + tile * 8 + lane * 2) =
              make_float2(products[g][0] + second[g][0], products[g][1] + second[g][1]);
        }
      }
    }
  }
};

}  // namespace tandem
