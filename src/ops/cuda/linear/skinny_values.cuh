// What the kernels of few rows, skinny_linear.cu and skinny_direct.cu, have in common: their arguments, and
// how the warps of a block make a tile's results of their sums. For .cu files.
#pragma once

#include <cstdint>

#include "base/matrix_view.h"
#include "ops/cuda/linear/skinny_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"

namespace tandem {

struct SkinnyArguments {
  const void* weight = nullptr;
  const void* x = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int out_features = 0;
  int in_features = 0;
  int rows = 0;
  bool y_is_f32 = false;
};

// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's
// in_features: warp w takes slices w, w + 8, w + 16, ... of 64 elements.
constexpr int kValuesWarps = 8;
constexpr int kValuesThreads = kValuesWarps * 32;
constexpr int kValuesSliceElements = 64;
constexpr int kValuesTileOutputs = 16;
constexpr int kValuesTilePitch = kValuesTileOutputs + 4;  // a warp's stores of sums then meet no bank twice
constexpr int kValuesSumsOfWarp = static_cast<int>(kMaxSkinnyRows) * kValuesTilePitch;
static_assert(kMaxSkinnyRows == 8);  // the width of the tensor core's product

// Results of a tile: the warps' sums, as the tensor core has them, are added in fixed order. sums_of_warps:
// shared memory, kValuesSumsOfWarp of each warp. All threads of the block.
template <typename T>
__device__ __forceinline__ void StoreValuesTile(const SkinnyArguments& arguments, int tile,
                                                const float (&sums)[4], float* sums_of_warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane / 4;
  const int member = lane % 4;
  __syncthreads();  // the sums of the tile before have been read
  float* to = sums_of_warps + warp * kValuesSumsOfWarp + member * 2 * kValuesTilePitch + group;
  to[0] = sums[0];
  to[kValuesTilePitch] = sums[1];
  to[8] = sums[2];
  to[kValuesTilePitch + 8] = sums[3];
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < arguments.rows * kValuesTileOutputs; i += kValuesThreads) {
    const int row = i / kValuesTileOutputs;
    const int column = i % kValuesTileOutputs;
    const int output = tile * kValuesTileOutputs + column;
    if (output >= arguments.out_features) continue;
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < kValuesWarps; ++w) {
      sum += sums_of_warps[w * kValuesSumsOfWarp + row * kValuesTilePitch + column];
    }
    if (arguments.bias != nullptr) sum += arguments.bias[output];
    const int64_t at = row * arguments.y_stride + output;
    StoreResult<T>(arguments.y, arguments.y_is_f32, at, sum);
  }
}

}  // namespace tandem
