// Products of quantized_linear.h of up to 8 rows for compute capability 7.5, fp16: records stream through
// registers, which hold what the tensor core's lanes want as it lies in memory.
//
// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's slices:
// warp w takes slices w, w + 8, w + 16, ..., and keeps its next records on their way, those of its block's
// next tile as this one ends. Sums are added in fixed order.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/register_loads.cuh"
#include "ops/cuda/rows/silu.h"

namespace tandem {

constexpr int kDirectCodesWarps = 8;
constexpr int kDirectCodesThreads = kDirectCodesWarps * 32;

template <typename Format>
struct DirectCodesShape {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kSteps = kLayout.slice_size() / 16;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kGroupSteps = kSteps / kGroups;
  static constexpr int kQuanta = kSteps / 2;  // of x: 32 elements
  // What a lane holds of a record: codes, 16 bytes each, and words of two scales, or minimums.
  static constexpr int kWords = kLayout.code_bytes() / 512;
  static constexpr int kNumbers = kGroups * kLayout.numbers_per_group();
  // Records on their way. Even, as slices of x take two places by turns.
  static constexpr int kDepth = kNumbers == 8 ? 2 : kWords * 4 + kNumbers <= 6 ? 6 : 4;
  // Fragments are codes less this, which the minimum makes good for as a multiple of the scale.
  static constexpr int kSubtracted = kLayout.bits == 8 ? 128 : 8;
  static constexpr auto kScalesInMinimum = static_cast<float>(kSubtracted - kLayout.zero_code());
  static_assert(kLayout.has_minimum || kScalesInMinimum == 0.0F);
  // A warp's stores of sums meet no bank twice.
  static constexpr int kTilePitch = kRecordOutputs + 4;
  static constexpr int kSumsOfWarp = static_cast<int>(kMaxSkinnyCodeRows) * kTilePitch;
};

// What a lane holds of a record.
template <typename Shape>
struct DirectRecord {
  uint4 words[Shape::kWords];
  uint32_t numbers[Shape::kNumbers];

  __device__ __forceinline__ void Load(const unsigned char* record, int lane) {
#pragma unroll
    for (int i = 0; i < Shape::kWords; ++i) words[i] = LoadOnce(record + i * 512 + lane * 16);
    const unsigned char* from = record + Shape::kLayout.code_bytes() + lane / 4 * Shape::kNumbers * 4;
    if constexpr (Shape::kNumbers == 1) {
      numbers[0] = LoadOnce4(from);
    } else if constexpr (Shape::kNumbers == 2) {
      const uint2 two = LoadOnce8(from);
      numbers[0] = two.x;
      numbers[1] = two.y;
    } else {
      static_assert(Shape::kNumbers % 4 == 0);
#pragma unroll
      for (int i = 0; i < Shape::kNumbers; i += 4) {
        const uint4 four = LoadOnce(from + i * 4);
        numbers[i] = four.x;
        numbers[i + 1] = four.y;
        numbers[i + 2] = four.z;
        numbers[i + 3] = four.w;
      }
    }
  }

  // sums[16 outputs, 8 rows] += the record's product. x: b0 and b1 of two steps each.
  __device__ __forceinline__ void AddTo(float (&sums)[4], const uint4 (&x)[Shape::kQuanta]) const {
    constexpr CodeLayout kLayout = Shape::kLayout;
    [[maybe_unused]] const uint32_t ones = TwoOnes<__half>();
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      // Two sums each, so that no product waits for the one before it.
      float products[2][4] = {};
      float of_x[2][4] = {};
#pragma unroll
      for (int i = 0; i < Shape::kGroupSteps; ++i) {
        const int step = group * Shape::kGroupSteps + i;
        uint32_t fragments[4];
        if constexpr (kLayout.bits == 4) {
          ValuesOf4Bits<__half, Shape::kSubtracted>(fragments, WordOf(words[step / 4], step % 4));
        } else {
          CenteredValuesOf8Bits<__half>(fragments, WordOf(words[step / 2], step % 2 * 2),
                                        WordOf(words[step / 2], step % 2 * 2 + 1));
        }
        const uint32_t b0 = WordOf(x[step / 2], step % 2 * 2);
        const uint32_t b1 = WordOf(x[step / 2], step % 2 * 2 + 1);
        MultiplyAdd8(products[0], fragments[0], fragments[1], b0);
        MultiplyAdd8(products[1], fragments[2], fragments[3], b1);
        if constexpr (kLayout.has_minimum) {
          MultiplyAdd8(of_x[0], ones, ones, b0);
          MultiplyAdd8(of_x[1], ones, ones, b1);
        }
      }
      const uint32_t* of_group = numbers + group * kLayout.numbers_per_group();
      const float2 scales = __half22float2(*reinterpret_cast<const __half2*>(of_group));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i] = fmaf(i < 2 ? scales.x : scales.y, products[0][i] + products[1][i], sums[i]);
      }
      if constexpr (kLayout.has_minimum) {
        float2 minimums = __half22float2(*reinterpret_cast<const __half2*>(of_group + 1));
        minimums.x = fmaf(scales.x, Shape::kScalesInMinimum, minimums.x);
        minimums.y = fmaf(scales.y, Shape::kScalesInMinimum, minimums.y);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = fmaf(i < 2 ? minimums.x : minimums.y, of_x[0][i % 2] + of_x[1][i % 2], sums[i]);
        }
      }
    }
  }
};

template <typename Format>
__global__ void __launch_bounds__(kDirectCodesThreads, 2)
    SkinnyCodesDirectKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  using Shape = DirectCodesShape<Format>;
  constexpr CodeLayout kLayout = Shape::kLayout;
  constexpr int kWarps = kDirectCodesWarps;
  constexpr int kDepth = Shape::kDepth;
  __shared__ float sums_of_warps[kWarps * Shape::kSumsOfWarp];
  AllowSuccessors();
  WaitForPredecessors();
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int octet = lane / 4;
  const int q = lane % 4;
  const int num_slices = product.num_slices;
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  const int tile_step = static_cast<int>(gridDim.x);
  const int warp_slices = warp < num_slices ? (num_slices - warp + kWarps - 1) / kWarps : 0;
  const bool x_stays = warp_slices <= 2;  // every tile needs the same
  // The first is there sooner, the second asks the L1 for a quarter as much.
  constexpr int kFewestRows = 2;
  const bool by_pairs = product.rows <= kFewestRows;

  DirectRecord<Shape> records[kDepth];
  uint4 xs[2][Shape::kQuanta];
  const auto load_record = [&](int slot, int tile, int index) {
    const int64_t place =
        (static_cast<int64_t>(tile / kPanelRecords) * num_slices + warp + index * kWarps) * kPanelRecords +
        tile % kPanelRecords;
    records[slot].Load(static_cast<const unsigned char*>(product.records) + place * kLayout.record_bytes(),
                       lane);
  };
  const auto load_x = [&](uint4(&to)[Shape::kQuanta], int index) {
    const int k = (warp + index * kWarps) * kLayout.slice_size() + q * (by_pairs ? 2 : 8);
    const __half* from = static_cast<const __half*>(product.x) + octet * product.x_stride + k;
#pragma unroll
    for (int i = 0; i < Shape::kQuanta; ++i) {
      to[i] = make_uint4(0, 0, 0, 0);
      const int left = product.in_features - k - i * 32;  // in_features is a multiple of 16
      if (octet >= product.rows || left <= 0) continue;
      if (by_pairs) {
        to[i].x = *reinterpret_cast<const uint32_t*>(from + i * 32);
        to[i].y = *reinterpret_cast<const uint32_t*>(from + i * 32 + 8);
        if (left <= 16) continue;
        to[i].z = *reinterpret_cast<const uint32_t*>(from + i * 32 + 16);
        to[i].w = *reinterpret_cast<const uint32_t*>(from + i * 32 + 24);
      } else {
        to[i] = *reinterpret_cast<const uint4*>(from + i * 32);
      }
    }
  };
  // Once for what has been loaded: 8 in sequence become the pairs that the tensor core's lanes hold of two
  // steps.
  const auto make_pairs = [&](uint4(&of_slice)[Shape::kQuanta]) {
    if (by_pairs) return;
#pragma unroll
    for (uint4& eight : of_slice) {
      uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
      TransposeInQuad(pairs, q);
      eight = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (i < warp_slices) load_record(i, static_cast<int>(blockIdx.x), i);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i < warp_slices) load_x(xs[i], i);
    if (i < warp_slices && x_stays) make_pairs(xs[i]);
  }

  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += tile_step) {
    float sums[4] = {};
    const bool has_next = tile + tile_step < num_tiles;
    for (int first = 0; first < warp_slices; first += kDepth) {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const int index = first + i;
        if (index >= warp_slices) break;
        if (!x_stays) make_pairs(xs[i % 2]);
        records[i].AddTo(sums, xs[i % 2]);
        const bool in_tile = index + kDepth < warp_slices;
        if (in_tile || has_next) {
          load_record(i, in_tile ? tile : tile + tile_step, in_tile ? index + kDepth : i);
        }
        if (!x_stays) load_x(xs[i % 2], index + 2 < warp_slices ? index + 2 : i % 2);
      }
    }

    __syncthreads();  // the sums of the tile before have been read
    float* to = sums_of_warps + warp * Shape::kSumsOfWarp + q * 2 * Shape::kTilePitch + octet;
    to[0] = sums[0];
    to[Shape::kTilePitch] = sums[1];
    to[8] = sums[2];
    to[Shape::kTilePitch + 8] = sums[3];
    __syncthreads();
    const auto result = [&](int row, int column) {
      const int output = tile * kRecordOutputs + column;
      float sum = 0.0F;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        sum += sums_of_warps[w * Shape::kSumsOfWarp + row * Shape::kTilePitch + column];
      }
      return fmaf(sum, product.factors[output], product.bias == nullptr ? 0.0F : product.bias[output]);
    };
    if (product.is_gate_up) {
      // The first 8 outputs are gates, the others the ups that belong to them.
      static_assert(kGateUpBlock == 8 && kRecordOutputs == 16);
      const int row = thread / 8;
      const int column = thread % 8;
      if (row < product.rows && tile * kRecordOutputs < product.out_features) {
        StoreRounded(static_cast<__half*>(product.y) + row * product.y_stride + tile * 8 + column,
                     SiluMulOne(result(row, column), result(row, column + 8)));
      }
      continue;
    }
    const int row = thread / kRecordOutputs;
    const int output = tile * kRecordOutputs + thread % kRecordOutputs;
    if (row >= product.rows || output >= product.out_features) continue;
    const int64_t at = row * product.y_stride + output;
    StoreResult<__half>(product.y, product.y_is_f32, at, result(row, thread % kRecordOutputs));
  }
#else
  __trap();
#endif
}

template <typename Format>
void LaunchSkinnyCodesDirect(CudaStream& stream, const QuantizedProduct& product) {
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  const int grid = std::min(num_tiles, stream.target().num_sms * 2);
  LaunchKernel("skinny codes", SkinnyCodesDirectKernel<Format>, dim3(static_cast<unsigned>(grid)),
               dim3(kDirectCodesThreads), 0, stream, product);
}

}  // namespace tandem
