// Products of quantized_linear.h of up to 8 rows, limited by memory and by what a product must wait for.
//
// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's slices:
// warp w takes slices w, w + 8, w + 16, ... Each warp streams the records of its slices of all its tiles
// through a ring of its own in shared memory, so no warp waits for another but at the end of a tile, where
// their sums are added in fixed order: as skinny_linear.cu does with values.
//
// The first records are requested before the predecessors have ended. A block takes less than half of an SM's
// shared memory and two work on an SM, so that the next kernel's blocks become resident, and fill their
// rings, as this one's end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/rows/silu.h"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kSkinnyCodesThreads = kSkinnyWarps * 32;
static_assert(kMaxSkinnyCodeRows == 8);  // the width of the tensor core's product

template <typename T, typename Format>
struct SkinnyCodesShape {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  static constexpr int kRecordChunks = kRecordBytes / 16;
  static constexpr int kDepth = kSkinnyRingBytes / kRecordBytes;
  static constexpr int kSteps = kLayout.slice_size() / 16;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kGroupSteps = kSteps / kGroups;
  static constexpr int kWords = kLayout.code_bytes() / 512;  // of a lane, 16 bytes each
  static constexpr int kQuanta = kSteps / 2;                 // of x: 32 elements
  // Slices of x in registers. For rows of 4096 elements that is all of it.
  static constexpr int kSlicesOfX = 16 / kQuanta;
  // A warp's stores of sums meet no bank twice.
  static constexpr int kTilePitch = kRecordOutputs + 4;
  static constexpr int kSumsOfWarp = static_cast<int>(kMaxSkinnyCodeRows) * kTilePitch;
  static_assert(kSkinnySharedBytes ==
                kSkinnyWarps * (kSkinnyRingBytes + kSumsOfWarp * static_cast<int>(sizeof(float))));

  // Fragments are codes plus this, exactly; what is too much goes with the minimum, as a multiple of the
  // scale.
  static constexpr float kBase = kLayout.bits == 8 ? -128.0F : std::is_same_v<T, __half> ? -8.0F : 128.0F;
  static constexpr float kScalesInMinimum =
      -kBase - (kLayout.has_minimum ? 0.0F : static_cast<float>(kLayout.zero_code()));
  static constexpr bool kHasMinimum = kLayout.has_minimum || kScalesInMinimum != 0.0F;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// sums[16 outputs, 8 rows] += a record's product. x: b0 and b1 of two steps each.
template <typename T, typename Shape>
__device__ __forceinline__ void AddRecord(float (&sums)[4], const unsigned char* record,
                                          const uint4 (&x)[Shape::kQuanta], int lane) {
  constexpr CodeLayout kLayout = Shape::kLayout;
  uint4 words[Shape::kWords];
#pragma unroll
  for (int i = 0; i < Shape::kWords; ++i) {
    words[i] = *reinterpret_cast<const uint4*>(record + i * 512 + lane * 16);
  }
  [[maybe_unused]] const uint32_t ones = TwoOnes<T>();
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
        const uint4& chunk = words[step / 4];
        const uint32_t word = step % 4 == 0   ? chunk.x
                              : step % 4 == 1 ? chunk.y
                              : step % 4 == 2 ? chunk.z
                                              : chunk.w;
        if constexpr (Shape::kBase > 0.0F) {
          BasedValuesOf4Bits<T>(fragments, word);
        } else {
          ValuesOf4Bits<T, 8>(fragments, word);
        }
      } else {
        const uint4& chunk = words[step / 2];
        CenteredValuesOf8Bits<T>(fragments, step % 2 == 0 ? chunk.x : chunk.z,
                                 step % 2 == 0 ? chunk.y : chunk.w);
      }
      const uint4& two_steps = x[step / 2];
      const uint32_t b0 = step % 2 == 0 ? two_steps.x : two_steps.z;
      const uint32_t b1 = step % 2 == 0 ? two_steps.y : two_steps.w;
      MultiplyAdd<T>(products[i % 2], fragments[0], fragments[1], fragments[2], fragments[3], b0, b1);
      if constexpr (Shape::kHasMinimum) MultiplyAdd<T>(of_x[i % 2], ones, ones, ones, ones, b0, b1);
    }
    const unsigned char* from =
        record + kLayout.code_bytes() + (lane / 4 * Shape::kGroups + group) * kLayout.numbers_per_group() * 4;
    const float2 scales = __half22float2(*reinterpret_cast<const __half2*>(from));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = fmaf(i < 2 ? scales.x : scales.y, products[0][i] + products[1][i], sums[i]);
    }
    if constexpr (Shape::kHasMinimum) {
      float2 minimums = make_float2(0.0F, 0.0F);
      if constexpr (kLayout.has_minimum)
        minimums = __half22float2(*reinterpret_cast<const __half2*>(from + 4));
      minimums.x = fmaf(scales.x, Shape::kScalesInMinimum, minimums.x);
      minimums.y = fmaf(scales.y, Shape::kScalesInMinimum, minimums.y);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i] = fmaf(i < 2 ? minimums.x : minimums.y, of_x[0][i % 2] + of_x[1][i % 2], sums[i]);
      }
    }
  }
}

#endif

// kByPairs: each lane reads what it multiplies, 4 bytes at a time, else 16 bytes that it exchanges: the first
// is done sooner, the second asks the L1 for a quarter as much.
template <typename T, typename Format, bool kByPairs>
__global__ void __launch_bounds__(kSkinnyCodesThreads, 2) SkinnyCodesKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = SkinnyCodesShape<T, Format>;
  constexpr CodeLayout kLayout = Shape::kLayout;
  constexpr int kWarps = kSkinnyWarps;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int num_slices = product.num_slices;
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  const int first_tile = static_cast<int>(blockIdx.x);
  const int tile_step = static_cast<int>(gridDim.x);
  const int block_tiles = (num_tiles - first_tile + tile_step - 1) / tile_step;
  const int warp_slices = warp < num_slices ? (num_slices - warp + kWarps - 1) / kWarps : 0;
  int records_to_request = block_tiles * warp_slices;

  unsigned char* ring = shared + warp * kSkinnyRingBytes;
  const uint64_t policy = StreamingPolicy();
  int request_slice = warp;
  int request_tile = first_tile;
  const auto request_record = [&](int slot) {
    const auto to =
        static_cast<uint32_t>(__cvta_generic_to_shared(ring + slot * Shape::kRecordBytes + lane * 16));
    const int64_t place =
        (static_cast<int64_t>(request_tile / kPanelRecords) * num_slices + request_slice) * kPanelRecords +
        request_tile % kPanelRecords;
    const unsigned char* from =
        static_cast<const unsigned char*>(product.records) + place * Shape::kRecordBytes + lane * 16;
#pragma unroll
    for (int chunk = 0; chunk < Shape::kRecordChunks; chunk += 32) {
      if (chunk + 32 <= Shape::kRecordChunks || chunk + lane < Shape::kRecordChunks) {
        CopyAsync(to + static_cast<uint32_t>(chunk * 16), from + chunk * 16, true, policy);
      }
    }
    --records_to_request;
    request_slice += kWarps;
    if (request_slice >= num_slices) {
      request_slice = warp;
      request_tile += tile_step;
    }
  };
#pragma unroll
  for (int slot = 0; slot < Shape::kDepth; ++slot) {
    if (records_to_request > 0) request_record(slot);
    CommitCopies();
  }

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  const int octet = lane / 4;
  const int q = lane % 4;
  const auto* x = static_cast<const T*>(product.x);
  uint4 xs[Shape::kSlicesOfX][Shape::kQuanta];
  const auto load_x = [&](uint4(&to)[Shape::kQuanta], int slice) {
#pragma unroll
    for (int i = 0; i < Shape::kQuanta; ++i) {
      const int k = slice * kLayout.slice_size() + i * 32 + q * (kByPairs ? 2 : 8);
      const T* from = x + octet * product.x_stride + k;
      to[i] = make_uint4(0, 0, 0, 0);
      // in_features is a multiple of 16.
      if (octet >= product.rows || k >= product.in_features) continue;
      if constexpr (kByPairs) {
        to[i].x = *reinterpret_cast<const uint32_t*>(from);
        to[i].y = *reinterpret_cast<const uint32_t*>(from + 8);
        if (k + 16 >= product.in_features) continue;
        to[i].z = *reinterpret_cast<const uint32_t*>(from + 16);
        to[i].w = *reinterpret_cast<const uint32_t*>(from + 24);
      } else {
        to[i] = *reinterpret_cast<const uint4*>(from);
      }
    }
  };
  // 8 in sequence become the pairs that the tensor core's lanes hold of two steps. Waits for what was loaded.
  const auto make_pairs = [q](uint4(&of_slice)[Shape::kQuanta]) {
    if constexpr (!kByPairs) {
#pragma unroll
      for (uint4& eight : of_slice) {
        uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
        TransposeInQuad(pairs, q);
        eight = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  };
  const auto load_first_x = [&] {
#pragma unroll
    for (int i = 0; i < Shape::kSlicesOfX; ++i) load_x(xs[i], warp + i * kWarps);
#pragma unroll
    for (int i = 0; i < Shape::kSlicesOfX; ++i) make_pairs(xs[i]);
  };
  auto* sums_of_warps = reinterpret_cast<float*>(shared + kWarps * kSkinnyRingBytes);

  load_first_x();
  int slot = 0;
  for (int tile = first_tile; tile < num_tiles; tile += tile_step) {
    float sums[4] = {};
    for (int first = 0; first < warp_slices; first += Shape::kSlicesOfX) {
#pragma unroll
      for (int i = 0; i < Shape::kSlicesOfX; ++i) {
        if (first + i >= warp_slices) break;
        WaitForCopies<Shape::kDepth - 1>();
        __syncwarp();
        if (first > 0) make_pairs(xs[i]);
        AddRecord<T, Shape>(sums, ring + slot * Shape::kRecordBytes, xs[i], lane);
        __syncwarp();  // all lanes have read the record
        if (records_to_request > 0) request_record(slot);
        CommitCopies();
        slot = slot + 1 == Shape::kDepth ? 0 : slot + 1;
        if (first + i + Shape::kSlicesOfX < warp_slices) {
          load_x(xs[i], warp + (first + i + Shape::kSlicesOfX) * kWarps);
        }
      }
    }
    // Every tile needs the same x.
    if (warp_slices > Shape::kSlicesOfX && tile + tile_step < num_tiles) load_first_x();

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
      continue;
    }
    const int row = thread / kRecordOutputs;
    const int output = tile * kRecordOutputs + thread % kRecordOutputs;
    if (row >= product.rows || output >= product.out_features) continue;
    const float value = result(row, thread % kRecordOutputs);
    const int64_t at = row * product.y_stride + output;
    StoreResult<T>(product.y, product.y_is_f32, at, value);
  }
  WaitForCopies<0>();
#else
  __trap();
#endif
}

template <typename T, typename Format, bool kByPairs>
void LaunchSkinnyCodesKernel(CudaStream& stream, const QuantizedProduct& product) {
  auto* kernel = SkinnyCodesKernel<T, Format, kByPairs>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSkinnySharedBytes));
    // Room for a block of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  const int grid = std::min(num_tiles, stream.target().num_sms * 2);
  LaunchKernel("skinny codes", kernel, dim3(static_cast<unsigned>(grid)), dim3(kSkinnyCodesThreads),
               kSkinnySharedBytes, stream, product);
}

template <typename T, typename Format>
void LaunchSkinnyCodes(CudaStream& stream, const QuantizedProduct& product) {
  // A layer of Llama-3.1-8B on an H200: with one row 50 us by pairs and 59 else, with 8 rows 75 and 62.
  constexpr int kFewestRows = 2;
  product.rows <= kFewestRows ? LaunchSkinnyCodesKernel<T, Format, true>(stream, product)
                              : LaunchSkinnyCodesKernel<T, Format, false>(stream, product);
}

}  // namespace tandem
