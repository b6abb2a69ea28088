// Products of few rows for compute capability 7.5, which has no asynchronous copies: the weights stream
// through registers.
#include <cuda_fp16.h>

#include <algorithm>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/skinny_direct.h"
#include "ops/cuda/linear/skinny_values.cuh"
#include "ops/cuda/register_loads.cuh"

namespace tandem {
namespace {

// Slices of a warp that are on their way: with two blocks on an SM 128 KiB of weights there.
[[maybe_unused]] constexpr int kDepth = 4;

// Each warp keeps its next kDepth slices on their way into registers, those of its block's next tile as this
// one ends, so it waits for the other warps only where their sums are added.
__global__ void __launch_bounds__(kValuesThreads, 2) SkinnyDirectKernel(const SkinnyArguments arguments) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  __shared__ float sums_of_warps[kValuesWarps * kValuesSumsOfWarp];
  AllowSuccessors();
  WaitForPredecessors();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int in_features = arguments.in_features;
  const int num_slices = (in_features + kValuesSliceElements - 1) / kValuesSliceElements;
  const int num_tiles = (arguments.out_features + kValuesTileOutputs - 1) / kValuesTileOutputs;
  const int tile_step = static_cast<int>(gridDim.x);
  const int warp_slices = warp < num_slices ? (num_slices - warp + kValuesWarps - 1) / kValuesWarps : 0;

  // Fragments: with group = lane / 4 and member = lane % 4 the tensor core multiplies, for two rows of the
  // weight (group, group + 8) and one row of x (group), the elements that the four members hold. Which
  // element of k is at which place does not matter as long as both sides agree: a member holds 8 neighbours
  // of each half of a slice.
  const int group = lane / 4;
  const int member = lane % 4;
  const auto* weight = static_cast<const __half*>(arguments.weight);
  const auto* x = static_cast<const __half*>(arguments.x) + group * arguments.x_stride;
  const bool has_row = group < arguments.rows;
  uint4 upper[kDepth][2];
  uint4 lower[kDepth][2];
  uint4 of_x[kDepth][2];
  const auto load_weight = [&](int slot, int tile, int index) {
    const int k = (warp + index * kValuesWarps) * kValuesSliceElements + member * 8;
    // Of outputs that do not exist the last row: what comes of it is not stored.
    const int output = tile * kValuesTileOutputs + group;
    const __half* upper_from =
        weight + static_cast<int64_t>(min(output, arguments.out_features - 1)) * in_features + k;
    const __half* lower_from =
        weight + static_cast<int64_t>(min(output + 8, arguments.out_features - 1)) * in_features + k;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (k + half * 32 < in_features) {
        upper[slot][half] = LoadOnce(upper_from + half * 32);
        lower[slot][half] = LoadOnce(lower_from + half * 32);
      } else {
        upper[slot][half] = lower[slot][half] = make_uint4(0, 0, 0, 0);
      }
    }
  };
  const auto load_x = [&](int slot, int index) {
    const int k = (warp + index * kValuesWarps) * kValuesSliceElements + member * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      of_x[slot][half] = make_uint4(0, 0, 0, 0);
      if (has_row && k + half * 32 < in_features) {
        of_x[slot][half] = *reinterpret_cast<const uint4*>(x + k + half * 32);
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (i >= warp_slices) break;
    load_weight(i, static_cast<int>(blockIdx.x), i);
    load_x(i, i);
  }

  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += tile_step) {
    float sums[2][4] = {};  // two, so that no product waits for the one before it
    const bool has_next = tile + tile_step < num_tiles;
    for (int first = 0; first < warp_slices; first += kDepth) {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (first + i >= warp_slices) break;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            MultiplyAdd8(sums[half], WordOf(upper[i][half], word), WordOf(lower[i][half], word),
                         WordOf(of_x[i][half], word));
          }
        }
        const bool in_tile = first + i + kDepth < warp_slices;
        const int next = in_tile ? first + i + kDepth : i;
        if (in_tile || has_next) {
          load_weight(i, in_tile ? tile : tile + tile_step, next);
          // Every tile needs the same x.
          if (warp_slices > kDepth) load_x(i, next);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][i] += sums[1][i];
    StoreValuesTile<__half>(arguments, tile, sums[0], sums_of_warps);
  }
#else
  __trap();
#endif
}

}  // namespace

void LaunchSkinnyDirect(CudaStream& stream, const SkinnyArguments& arguments) {
  const int num_tiles = (arguments.out_features + kValuesTileOutputs - 1) / kValuesTileOutputs;
  const int grid = std::min(num_tiles, stream.target().num_sms * 2);
  LaunchKernel("skinny linear", SkinnyDirectKernel, dim3(static_cast<unsigned>(grid)), dim3(kValuesThreads),
               0, stream, arguments);
}

}  // namespace tandem
