// Products of fp8_linear.h of up to 8 rows, limited by memory and by what a product must wait for.
//
// In the frame of skinny_tile.cuh, with slices of 128 codes.
//
// At the memory's rate an SM has some 200 instructions for a KiB of codes, over all its warps. GPUs from
// compute capability 8.9 on make two codes two numbers of fp16 in one instruction, and have none for bf16: so
// the tensor cores multiply fp16 whatever x is. x of bf16 becomes fp16 in registers, times a power of two.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/e4m3_values.cuh"
#include "ops/cuda/linear/fp8/fp8_linear.h"
#include "ops/cuda/linear/skinny_tile.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

template <typename T, bool kGroupScales>
struct SkinnyFp8Shape {
  static constexpr int kCodeBytes = kSkinnyTileOutputs * kFp8Slice;
  // Behind the codes of a stage the scales of their group.
  static constexpr int kStageBytes =
      kCodeBytes + (kGroupScales ? kSkinnyTileOutputs * static_cast<int>(sizeof(float)) : 0);
  static constexpr int kDepth = kSkinnyRingBytes / kStageBytes;
  // Slices of x in registers, a set. For rows of 4096 elements that is all of it.
  static constexpr int kSlicesOfX = 4;
  // Of a slice: 64 codes of an output, of which a lane reads 16.
  static constexpr int kHalves = 2;
  static constexpr bool kScalesX = std::is_same_v<T, __nv_bfloat16>;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// A lane's part of a set of x: 16 elements of a row for each half of a slice.
template <int kSlices>
using Fp8SetOfX = uint4[kSlices][2][2];

// function(word) for the pairs of elements of a slice.
template <typename Function>
__device__ __forceinline__ void ForEachPair(uint4 (&slice)[2][2], const Function& function) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4& eight = slice[i / 2][i % 2];
    function(&eight.x);
    function(&eight.y);
    function(&eight.z);
    function(&eight.w);
  }
}

__device__ __forceinline__ __nv_bfloat162 AsBf16Pair(const uint32_t& bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// A power of two, twice, and its inverse.
struct ScaleOfX {
  uint32_t two_scales;  // bf16
  float inverse;
};

// What brings the largest magnitude of the first count slices of a set of bf16 to 2^14 to 2^15. The four
// lanes of a row together.
template <int kSlices>
__device__ __forceinline__ ScaleOfX MakeScaleOfX(Fp8SetOfX<kSlices>& set, int count) {
  __nv_bfloat162 most = AsBf16Pair(0);
  __nv_bfloat162 least = AsBf16Pair(0);
#pragma unroll
  for (int i = 0; i < kSlices; ++i) {
    if (i >= count) break;
    ForEachPair(set[i], [&](const uint32_t* pair) {
      most = __hmax2(most, AsBf16Pair(*pair));
      least = __hmin2(least, AsBf16Pair(*pair));
    });
  }
  const __nv_bfloat162 magnitudes = __hmax2(most, __hneg2(least));
  const uint32_t bits = *reinterpret_cast<const uint32_t*>(&magnitudes) & 0x7fff7fffU;
  uint32_t largest = max(bits >> 16, bits & 0xffffU);
  largest = max(largest, __shfl_xor_sync(~0U, largest, 1));
  largest = max(largest, __shfl_xor_sync(~0U, largest, 2));
  // Biased by 127. Those of the scale and its inverse are at least 1.
  constexpr uint32_t kLeastExponent = 15;
  const uint32_t exponent = max(largest >> 7, kLeastExponent);
  const uint32_t scale = (127 + 14 + 127 - exponent) << 7;
  return {.two_scales = scale << 16 | scale, .inverse = __uint_as_float((exponent - 14) << 23)};
}

// A slice of bf16 becomes fp16 times the scale. What is at least 2^-31 of the largest magnitude stays exact,
// the rest moves by at most 2^-39 of that, which sums in fp32 do not see.
__device__ __forceinline__ void MakeHalves(uint4 (&slice)[2][2], uint32_t two_scales) {
  ForEachPair(slice, [two_scales](uint32_t* pair) {
    const __nv_bfloat162 scaled = __hmul2(AsBf16Pair(*pair), AsBf16Pair(two_scales));
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&scaled);
    const __half2 halves =
        __floats2half2_rn(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000U));
    *pair = *reinterpret_cast<const uint32_t*>(&halves);
  });
}

// sums[16 outputs, 8 rows] += the product of half a slice. low, high: codes of outputs r and r + 8.
__device__ __forceinline__ void MultiplyFp8Half(float (&sums)[4], const uint4& low, const uint4& high,
                                                const uint4 (&x)[2]) {
  const auto step = [&](uint32_t low_codes, uint32_t high_codes, uint32_t b0, uint32_t b1) {
    const uint2 of_low = HalvesOfE4M3(low_codes);
    const uint2 of_high = HalvesOfE4M3(high_codes);
    MultiplyAdd<__half>(sums, of_low.x, of_high.x, of_low.y, of_high.y, b0, b1);
  };
  step(low.x, high.x, x[0].x, x[0].y);
  step(low.y, high.y, x[0].z, x[0].w);
  step(low.z, high.z, x[1].x, x[1].y);
  step(low.w, high.w, x[1].z, x[1].w);
}

#endif

// kWhole: no tile and no slice is cut off by the weight's end.
template <typename T, bool kGroupScales, bool kWhole>
__global__ void __launch_bounds__(kSkinnyThreads, 2) SkinnyFp8Kernel(const Fp8Product product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = SkinnyFp8Shape<T, kGroupScales>;
  constexpr int kWarps = kSkinnyWarps;
  constexpr int kTileOutputs = kSkinnyTileOutputs;
  constexpr int kSlicesOfX = Shape::kSlicesOfX;
  constexpr int kHalves = Shape::kHalves;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int in_features = product.in_features;
  const int out_features = product.out_features;
  const int num_slices = product.num_slices;
  const SkinnyShare share(product, warp);
  const int warp_slices = share.warp_slices;
  const bool has_sets = warp_slices > kSlicesOfX;
  int stages_to_request = share.block_tiles() * warp_slices;

  // Requests: lane l brings 16 codes (chunk l % 8) of rows l / 8, l / 8 + 4, ... of a stage. Odd rows have
  // their halves exchanged, which spreads the fragments that a warp reads at once over all banks.
  const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                        static_cast<uint32_t>(warp * kSkinnyRingBytes);
  const uint64_t policy = StreamingPolicy();
  const int request_row = lane / 8;
  const int request_chunk = lane % 8;
  const auto request_place =
      static_cast<uint32_t>(request_row * kFp8Slice + (request_chunk ^ (request_row % 2 * 4)) * 16);
  int request_slice = warp;
  int request_tile = share.first_tile;
  const unsigned char* request_from = nullptr;
  const auto request_next_tile = [&](int tile) {
    request_slice = warp;
    request_tile = tile;
    request_from = static_cast<const unsigned char*>(product.records) +
                   static_cast<int64_t>(tile * kTileOutputs + request_row) * in_features + warp * kFp8Slice +
                   request_chunk * 16;
  };
  request_next_tile(share.first_tile);
  const auto request_stage = [&](uint32_t stage) {
    const uint32_t to = stage + request_place;
    const bool inside = kWhole || request_slice * kFp8Slice + request_chunk * 16 < in_features;
    const int first_output = request_tile * kTileOutputs + request_row;
#pragma unroll
    for (int i = 0; i < kTileOutputs / 4; ++i) {
      CopyAsync(to + static_cast<uint32_t>(i * 4 * kFp8Slice), request_from + int64_t{i * 4} * in_features,
                inside && (kWhole || first_output + i * 4 < out_features), policy);
    }
    if constexpr (kGroupScales) {
      const int output = request_tile * kTileOutputs + lane;
      const int group =
          product.slices_per_group == 1 ? request_slice : request_slice / product.slices_per_group;
      if (lane < kTileOutputs) {
        CopyAsync4(stage + static_cast<uint32_t>(Shape::kCodeBytes + lane * 4),
                   product.factors + static_cast<int64_t>(output) * product.num_groups + group,
                   output < out_features);
      }
    }
    --stages_to_request;
    request_slice += kWarps;
    request_from += kWarps * kFp8Slice;
    if (request_slice >= num_slices) request_next_tile(request_tile + share.tile_step);
  };
#pragma unroll
  for (int slot = 0; slot < Shape::kDepth; ++slot) {
    if (stages_to_request > 0) request_stage(ring + static_cast<uint32_t>(slot * Shape::kStageBytes));
    CommitCopies();
  }

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  // Fragments: with group = lane / 4 and member = lane % 4 the tensor core multiplies, for two rows of the
  // weight (group, group + 8) and one row of x (group), the elements that the four members hold. Which
  // element of k is at which place does not matter as long as both sides agree: a member holds 16 neighbours.
  const int group = lane / 4;
  const int member = lane % 4;
  const T* x = static_cast<const T*>(product.x) + group * product.x_stride + warp * kFp8Slice + member * 16;
  const bool has_row = group < product.rows;
  // Zeros in lanes that have no row.
  Fp8SetOfX<kSlicesOfX> xs = {};
  // number: of the warp's slices.
  const auto load_x = [&](uint4(&to)[kHalves][2], int number) {
    const T* from = x + number * (kWarps * kFp8Slice);
    const int left = in_features - (warp + number * kWarps) * kFp8Slice - member * 16;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      constexpr int kElements = kFp8Slice / kHalves;
      if constexpr (!kWhole) to[half][0] = to[half][1] = make_uint4(0, 0, 0, 0);
      if (has_row && (kWhole || half * kElements < left)) {
        to[half][0] = *reinterpret_cast<const uint4*>(from + half * kElements);
        to[half][1] = *reinterpret_cast<const uint4*>(from + half * kElements + 8);
      }
    }
  };
  const auto load_first_x = [&] {
#pragma unroll
    for (int i = 0; i < kSlicesOfX; ++i) {
      if (i < warp_slices) load_x(xs[i], i);
    }
  };
  auto* sums_of_warps = reinterpret_cast<float*>(shared + kWarps * kSkinnyRingBytes);
  // Of the lane's codes in a stage; those of the other half are 64 bytes on or before, where rows are odd.
  const auto place = static_cast<uint32_t>(group * kFp8Slice + (member ^ (group % 2 * 4)) * 16);

  // That a set was multiplied by has the inverse of rows 2 * member and 2 * member + 1, whose sums a lane
  // has.
  float inverse[2] = {1.0F, 1.0F};
  load_first_x();
  uint32_t stage = ring;
  for (int tile = share.first_tile; tile < share.num_tiles; tile += share.tile_step) {
    const SkinnyResult result(product, tile, thread, /*has_factor=*/!kGroupScales);
    float sums[4] = {};
    float totals[4] = {};
    // Adds the sums times the scales of the weight's rows and of x to the totals.
    const auto fold = [&](float low_scale, float high_scale) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = kGroupScales ? sums[i] * (i < 2 ? low_scale : high_scale) : sums[i];
        totals[i] = fmaf(sum, inverse[i % 2], totals[i]);
        sums[i] = 0.0F;
      }
    };
    for (int first = 0; first < warp_slices; first += kSlicesOfX) {
      const bool is_new_set = tile == share.first_tile || has_sets;
      [[maybe_unused]] uint32_t two_scales = 0;
      if constexpr (Shape::kScalesX) {
        if (is_new_set) {
          const ScaleOfX scale = MakeScaleOfX<kSlicesOfX>(xs, warp_slices - first);
          two_scales = scale.two_scales;
          inverse[0] = __shfl_sync(~0U, scale.inverse, member * 8);
          inverse[1] = __shfl_sync(~0U, scale.inverse, member * 8 + 4);
        }
      }
#pragma unroll
      for (int i = 0; i < kSlicesOfX; ++i) {
        if (first + i >= warp_slices) break;
        // One by one, so that the ring soon has room for further requests.
        if constexpr (Shape::kScalesX) {
          if (is_new_set) MakeHalves(xs[i], two_scales);
        }
        WaitForCopies<Shape::kDepth - 1>();
        __syncwarp();
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const uint32_t at = stage + (half == 0 ? place : place ^ 64U);
          MultiplyFp8Half(sums, LoadShared(at), LoadShared(at + 8 * kFp8Slice), xs[i][half]);
        }
        if constexpr (kGroupScales) {
          const uint32_t at = stage + static_cast<uint32_t>(Shape::kCodeBytes + group * 4);
          fold(__uint_as_float(LoadShared4(at)), __uint_as_float(LoadShared4(at + 8 * 4)));
        }
        __syncwarp();  // all lanes have read the stage
        if (stages_to_request > 0) request_stage(stage);
        CommitCopies();
        stage += Shape::kStageBytes;
        if (stage == ring + Shape::kDepth * Shape::kStageBytes) stage = ring;
        if (first + i + kSlicesOfX < warp_slices) load_x(xs[i], first + i + kSlicesOfX);
      }
      if constexpr (!kGroupScales) fold(1.0F, 1.0F);
    }
    // Every tile needs the same x.
    if (has_sets && tile + share.tile_step < share.num_tiles) load_first_x();

    StoreSkinnyTile<T>(product, result, tile, sums_of_warps, totals, /*unit=*/1.0F);
  }
#else
  __trap();
#endif
}

template <typename T, bool kGroupScales>
void LaunchSkinnyFp8(CudaStream& stream, const Fp8Product& product) {
  const bool is_whole =
      product.in_features % kFp8Slice == 0 && product.out_features % kSkinnyTileOutputs == 0;
  is_whole ? LaunchSkinny<SkinnyFp8Kernel<T, kGroupScales, true>>("skinny fp8", stream, product)
           : LaunchSkinny<SkinnyFp8Kernel<T, kGroupScales, false>>("skinny fp8", stream, product);
}

}  // namespace tandem
