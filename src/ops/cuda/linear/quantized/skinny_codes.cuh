// Products of quantized_linear.h of up to 8 rows, limited by memory and by what a product must wait for.
//
// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's slices:
// warp w takes slices w, w + 8, w + 16, ... Each warp streams the records of its slices of all its tiles
// through a ring of its own in shared memory, so no warp waits for another but at the end of a tile, where
// their sums are added in fixed order: as skinny_linear.cu does with values.
//
// Codes are multiplied as bytes, without becoming numbers, by an x of integers. A warp makes these of 512
// elements of a row at a time, a set, with a unit for each: once if its slices are one set, or as many as it
// keeps (skinny_codes_x.cuh).
//
// The first records are requested before the predecessors have ended. A block takes less than half of an SM's
// shared memory and two work on an SM, so that the next kernel's blocks become resident, and fill their
// rings, as this one's end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/skinny_codes_record.cuh"
#include "ops/cuda/linear/quantized/skinny_codes_ring.cuh"
#include "ops/cuda/linear/quantized/skinny_codes_shape.cuh"
#include "ops/cuda/linear/quantized/skinny_codes_x.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/rows/silu.h"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kSkinnyCodesThreads = kSkinnyCodesWarps * 32;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// y of a tile, of the sums that the warps have left: [warp][row][pitch], a warp's kSkinnyCodesWarpBytes
// apart.
template <typename T, typename Shape>
__device__ __forceinline__ void FinishTile(const QuantizedProduct& product, const unsigned char* sums,
                                           int tile) {
  const auto result = [&](int row, int column) {
    const int output = tile * kRecordOutputs + column;
    const unsigned char* from = sums + (row * Shape::kTilePitch + column) * 4;
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < kSkinnyCodesWarps; ++w) {
      sum += *reinterpret_cast<const float*>(from + w * kSkinnyCodesWarpBytes);
    }
    return fmaf(sum, product.factors[output], product.bias == nullptr ? 0.0F : product.bias[output]);
  };
  const auto thread = static_cast<int>(threadIdx.x);
  if (product.is_gate_up) {
    // The first 8 outputs are gates, the others the ups that belong to them.
    static_assert(kGateUpBlock == 8 && kRecordOutputs == 16);
    const int row = thread / 8;
    const int column = thread % 8;
    if (row < product.rows && tile * kRecordOutputs < product.out_features) {
      StoreRounded(static_cast<T*>(product.y) + row * product.y_stride + tile * 8 + column,
                   SiluMulOne(result(row, column), result(row, column + 8)));
    }
    return;
  }
  const int row = thread / kRecordOutputs;
  const int output = tile * kRecordOutputs + thread % kRecordOutputs;
  if (row >= product.rows || output >= product.out_features) return;
  const float value = result(row, thread % kRecordOutputs);
  const int64_t at = row * product.y_stride + output;
  if (product.y_is_f32) {
    static_cast<float*>(product.y)[at] = value;
  } else {
    StoreRounded(static_cast<T*>(product.y) + at, value);
  }
}

#endif

template <typename T, typename Format, int kMostRows>
__global__ void __launch_bounds__(kSkinnyCodesThreads, kSkinnyCodesBlocksPerSm)
    SkinnyCodesKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = SkinnyCodesShape<Format, kMostRows>;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  unsigned char* own = shared + warp * kSkinnyCodesWarpBytes;
  RecordRing<Shape> ring(product, own + Shape::kRingAt, num_tiles, warp, lane);
  const int num_sets = (ring.tile_records() + Shape::kSetSlices - 1) / Shape::kSetSlices;

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  // While a set is multiplied the next one is on its way; more rows have no registers for it.
  constexpr bool kLoadsAhead = Shape::kRows <= 2;
  const bool keeps_sets = num_sets <= Shape::kSetsKept;
  SetOfX<T, Shape> x(product, own, warp, lane);
  if (kLoadsAhead) x.Load(0);
  const int first_row = lane % 4 * Shape::kRowsOfLane % Shape::kRows;
  // From the lane's codes of a stage to its numbers.
  const auto to_numbers = static_cast<uint32_t>(2 * Shape::kLayout.code_bytes() - lane * 16 +
                                                lane / 4 * (Shape::kNumberChunks * 2));
  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += static_cast<int>(gridDim.x)) {
    const bool is_first = tile == static_cast<int>(blockIdx.x);
    float sums[Shape::kSums] = {};
    for (int set = 0; set < num_sets; ++set) {
      const int place = keeps_sets ? set : 0;
      if (is_first || !keeps_sets) {
        if (!kLoadsAhead) x.Load(set);
        x.Convert(place);
        const bool is_last = set + 1 == num_sets;
        if (kLoadsAhead && !(is_last && keeps_sets)) x.Load(is_last ? 0 : set + 1);
      } else if (num_sets > 1) {
        x.Take(place);
      }
      const uint32_t* sums_of_x = x.SumsOf(place) + first_row;
      float of_set[Shape::kSums] = {};
      const int set_records = ring.tile_records() - set * Shape::kSetSlices;
#pragma unroll
      for (int i = 0; i < Shape::kSetSlices; i += 2) {
        if (i >= set_records) break;
        const uint32_t stage = ring.Take();
#pragma unroll
        for (int slice = i; slice < i + 2; ++slice) {
          if (slice > i && slice >= set_records) break;
          const auto fragments = [&](int of_product, int piece) {
            return x.fragments(of_product, slice * Shape::kPieces + piece);
          };
          AddRecord<Shape>(
              of_set, stage + static_cast<uint32_t>((slice - i) * Shape::kLayout.code_bytes()),
              stage + to_numbers + static_cast<uint32_t>((slice - i) * Shape::kNumberChunks * 16), fragments,
              sums_of_x + slice * Shape::kGroups * Shape::kRows);
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) {
        const float unit = x.Units(place)[first_row + i % Shape::kRowsOfLane];
        sums[i] = fmaf(of_set[i], unit, sums[i]);
      }
    }
    // Two tiles' sums take turns: when these have been left, those of two tiles before have been read.
    float* to = reinterpret_cast<float*>(own + Shape::kTilesAt + turn * Shape::kTileBytes) + lane / 4;
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) {
      const int row = lane % 4 * Shape::kRowsOfLane + i % Shape::kRowsOfLane;
      if (row < Shape::kRows) to[row * Shape::kTilePitch + i / Shape::kRowsOfLane * 8] = sums[i];
    }
    __syncthreads();
    FinishTile<T, Shape>(product, shared + Shape::kTilesAt + turn * Shape::kTileBytes, tile);
    turn ^= 1;
  }
  WaitForCopies<0>();
#else
  __trap();
#endif
}

template <typename T, typename Format, int kMostRows>
void LaunchSkinnyCodesKernel(CudaStream& stream, const QuantizedProduct& product) {
  auto* kernel = SkinnyCodesKernel<T, Format, kMostRows>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSkinnyCodesSharedBytes));
    // Room for a block of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  int grid = stream.target().num_sms * kSkinnyCodesBlocksPerSm;
  grid = num_tiles <= grid ? num_tiles : std::max(grid / kPanelRecords, 1) * kPanelRecords;
  LaunchKernel("skinny codes", kernel, dim3(static_cast<unsigned>(grid)), dim3(kSkinnyCodesThreads),
               kSkinnyCodesSharedBytes, stream, product);
}

template <typename T, typename Format>
void LaunchSkinnyCodes(CudaStream& stream, const QuantizedProduct& product) {
  if (product.rows == 1) return LaunchSkinnyCodesKernel<T, Format, 1>(stream, product);
  if (product.rows == 2) return LaunchSkinnyCodesKernel<T, Format, 2>(stream, product);
  if (product.rows <= 4) return LaunchSkinnyCodesKernel<T, Format, 4>(stream, product);
  LaunchSkinnyCodesKernel<T, Format, 8>(stream, product);
}

}  // namespace tandem
