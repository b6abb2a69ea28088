// What products of up to 8 rows with codes have in common, be they of FP8 (fp8/skinny_fp8.cuh) or integers
// (quantized/skinny_codes.cuh).
//
// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's slices:
// warp w takes slices w, w + 8, w + 16, ... Each warp streams its slices of all its tiles through a ring of
// its own in shared memory, so no warp waits for another but at the end of a tile, where their sums are added
// in fixed order: as skinny_linear.cu does with values.
//
// The first slices are requested before the predecessors have ended. A block takes less than half of an SM's
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
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/rows/silu.h"

namespace tandem {

constexpr int kSkinnyThreads = kSkinnyWarps * 32;
constexpr int kSkinnyTileOutputs = 16;
static_assert(kMaxSkinnyCodeRows == 8);  // the width of the tensor core's product

// Of a warp's sums in shared memory: no bank is met twice when they are stored.
constexpr int kSkinnyTilePitch = kSkinnyTileOutputs + 4;
constexpr int kSkinnySumsOfWarp = static_cast<int>(kMaxSkinnyCodeRows) * kSkinnyTilePitch;
static_assert(kSkinnySharedBytes ==
              kSkinnyWarps * (kSkinnyRingBytes + kSkinnySumsOfWarp * static_cast<int>(sizeof(float))));

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// The tiles of this block, and how many of a tile's slices are of a warp.
struct SkinnyShare {
  int num_tiles;
  int first_tile;
  int tile_step;
  int warp_slices;

  __device__ __forceinline__ SkinnyShare(const QuantizedProduct& product, int warp)
      : num_tiles((product.out_features + kSkinnyTileOutputs - 1) / kSkinnyTileOutputs),
        first_tile(static_cast<int>(blockIdx.x)),
        tile_step(static_cast<int>(gridDim.x)),
        warp_slices(warp < product.num_slices ? (product.num_slices - warp + kSkinnyWarps - 1) / kSkinnyWarps
                                              : 0) {}
  __device__ __forceinline__ int block_tiles() const {
    return (num_tiles - first_tile + tile_step - 1) / tile_step;
  }
};

// The result of a tile that a thread adds up and stores. Threads beyond 8 rows have none.
struct SkinnyResult {
  int row;
  int column;
  int output;
  float factor = 1.0F;
  float bias = 0.0F;

  // What has to be read for it, at the tile's beginning.
  __device__ __forceinline__ SkinnyResult(const QuantizedProduct& product, int tile, int thread,
                                          bool has_factor)
      : row(thread / kSkinnyTileOutputs),
        column(thread % kSkinnyTileOutputs),
        output(tile * kSkinnyTileOutputs + column) {
    if (output >= product.out_features) return;
    if (has_factor) factor = product.factors[output];
    if (product.bias != nullptr) bias = product.bias[output];
  }
};

// A tile's end: the sums of all warps, in the fragments of MultiplyAdd, are added up, multiplied by unit and
// stored, or silu(gate) * up of them. All threads.
template <typename T>
__device__ __forceinline__ void StoreSkinnyTile(const QuantizedProduct& product, const SkinnyResult& result,
                                                int tile, float* sums_of_warps, const float (&sums)[4],
                                                float unit) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();  // the sums of the tile before have been read
  float* to = sums_of_warps + warp * kSkinnySumsOfWarp + lane % 4 * 2 * kSkinnyTilePitch + lane / 4;
  to[0] = sums[0];
  to[kSkinnyTilePitch] = sums[1];
  to[8] = sums[2];
  to[kSkinnyTilePitch + 8] = sums[3];
  __syncthreads();
  if (result.row >= static_cast<int>(kMaxSkinnyCodeRows)) return;
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < kSkinnyWarps; ++w) {
    sum += sums_of_warps[w * kSkinnySumsOfWarp + result.row * kSkinnyTilePitch + result.column];
  }
  const float value = fmaf(sum * unit, result.factor, result.bias);
  if (product.is_gate_up) {
    // The first 8 outputs are gates, the others the ups that belong to them.
    static_assert(kGateUpBlock == 8 && kSkinnyTileOutputs == 16);
    const float up = __shfl_xor_sync(~0U, value, 8);
    if (result.row < product.rows && result.column < 8) {
      StoreRounded(static_cast<T*>(product.y) + result.row * product.y_stride + tile * 8 + result.column,
                   SiluMulOne(value, up));
    }
    return;
  }
  if (result.row >= product.rows || result.output >= product.out_features) return;
  StoreResult<T>(product.y, product.y_is_f32, result.row * product.y_stride + result.output, value);
}

#endif

template <auto kKernel, typename Product>
void LaunchSkinny(const char* name, CudaStream& stream, const Product& product) {
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSkinnySharedBytes));
    // Room for a block of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  const int num_tiles = (product.out_features + kSkinnyTileOutputs - 1) / kSkinnyTileOutputs;
  const int grid = std::min(num_tiles, stream.target().num_sms * 2);
  LaunchKernel(name, kKernel, dim3(static_cast<unsigned>(grid)), dim3(kSkinnyThreads), kSkinnySharedBytes,
               stream, product);
}

}  // namespace tandem
