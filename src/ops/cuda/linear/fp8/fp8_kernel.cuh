// The kernel of fp8_linear.h: that of quantized_kernel.cuh with a weight that lies row by row.
//
// A block computes 128 outputs for up to 128 rows over a part of the slices. What a slice needs, 128 bytes of
// each output's codes and a piece of x, comes into a ring in shared memory. There a lane reads 16 codes at a
// time, neighbours of one output, and the elements of x that belong to them: which ones the tensor core takes
// for its first, second, ... does not matter to the product as long as both sides agree.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda/per_gpu.h"
#include "ops/cuda/e4m3_values.cuh"
#include "ops/cuda/linear/fp8/fp8_linear.h"
#include "ops/cuda/linear/fp8/skinny_fp8.cuh"
#include "ops/cuda/linear/quantized/quantized_kernel.cuh"
#include "ops/cuda/register_loads.cuh"

namespace tandem {

// What lies where in shared memory. After the products the sums take the place of the ring.
template <typename Tiling>
struct Fp8SharedPlan {
  static constexpr int kCodeBytes = kBlockOutputs * kFp8Slice;
  static constexpr int kXBytes = Tiling::kRows * kFp8Slice * 2;
  static constexpr int kStageBytes = kCodeBytes + kXBytes;
  static constexpr int kMinDepth = 3;
  static constexpr int kMaxDepth = 8;
  static constexpr int kDepth = std::clamp(Tiling::kSharedBudget / kStageBytes, kMinDepth, kMaxDepth);
  // A warp's stores of sums meet no bank twice.
  static constexpr int kSumsPitch = kBlockOutputs + 4;
  static constexpr int kSumsBytes = Tiling::kRows * kSumsPitch * 4;
  static constexpr int kBytes = std::max(kDepth * kStageBytes, kSumsBytes);
};

// A lane reads 16 codes of an output, and 16 elements of x, for four steps of the tensor core at once; four
// lanes those of a quantum.
constexpr int kFp8Quantum = 64;
constexpr int kFp8StepsPerQuantum = kFp8Quantum / 16;
constexpr int kFp8Quanta = kFp8Slice / kFp8Quantum;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Where 16 bytes lie in a stage, so that lanes that read or write together meet no bank twice. Codes: a row
// of 128 bytes an output.
__device__ __forceinline__ uint32_t PlaceOfFp8Codes(int output, int chunk) {
  return static_cast<uint32_t>(output * kFp8Slice + (chunk ^ (output % 2 * 4)) * 16);
}
// x: a row of 128 bytes for each quantum and row. chunk: of 8 elements, within the quantum.
template <typename Tiling>
__device__ __forceinline__ uint32_t PlaceOfFp8X(int row, int quantum, int chunk) {
  return static_cast<uint32_t>((quantum * Tiling::kRows + row) * 128 + (chunk ^ (row % 2)) * 16);
}

// Brings slices into the ring. Every thread copies the same places of every stage.
template <typename Tiling>
struct Fp8Requests {
  uint64_t policy;
  const unsigned char* codes;  // of the block's first output
  int outputs;                 // of the block that there are
  const unsigned char* x;
  int64_t x_stride_bytes;
  int rows;
  int in_features;

  __device__ __forceinline__ void Codes(uint32_t stage, int slice, int thread) const {
    constexpr int kRowChunks = kFp8Slice / 16;
#pragma unroll
    for (int begin = 0; begin < kBlockOutputs * kRowChunks; begin += kQuantizedThreads) {
      const int output = (begin + thread) / kRowChunks;
      const int chunk = (begin + thread) % kRowChunks;
      const int k = slice * kFp8Slice + chunk * 16;
      const bool valid = output < outputs && k < in_features;
      const int64_t offset = static_cast<int64_t>(output) * in_features + k;
      CopyAsync(stage + PlaceOfFp8Codes(output, chunk), codes + (valid ? offset : 0), valid, policy);
    }
  }

  __device__ __forceinline__ void X(uint32_t stage, int slice, int thread) const {
    constexpr int kRowChunks = kFp8Slice / 8;
    constexpr int kNumChunks = Tiling::kRows * kRowChunks;
    const uint32_t to = stage + Fp8SharedPlan<Tiling>::kCodeBytes;
#pragma unroll
    for (int begin = 0; begin < kNumChunks; begin += kQuantizedThreads) {
      const int number = begin + thread;
      if (number >= kNumChunks) break;
      const int row = number / kRowChunks;
      const int chunk = number % kRowChunks;
      const int k = slice * kFp8Slice + chunk * 8;
      const bool valid = row < rows && k < in_features;
      CopyAsync(to + PlaceOfFp8X<Tiling>(row, chunk / 8, chunk % 8),
                x + (valid ? row * x_stride_bytes + k * 2 : 0), valid);
    }
  }
};

// Adds the products of a slice that has arrived. codes: of the warp's first output; x: of the stage; scales:
// of outputs r and r + 8 of each record, only with group scales.
template <typename T, bool kGroupScales, typename Tiling>
__device__ __forceinline__ void MultiplyFp8Slice(
    float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4], uint32_t codes, uint32_t x,
    int first_row_tile, const float2 (&scales)[Tiling::kWarpRecords], int lane) {
  const int r = lane / 4;
  const int t = lane % 4;
  // Both quanta at once take more registers than blocks of many rows have.
  constexpr int kQuantaAtOnce = Tiling::kWarpRecords == 1 ? kFp8Quanta : 1;
#pragma unroll kQuantaAtOnce
  for (int quantum = 0; quantum < kFp8Quanta; ++quantum) {
    uint32_t fragments[Tiling::kWarpRecords][kFp8StepsPerQuantum][4];
#pragma unroll
    for (int i = 0; i < Tiling::kWarpRecords; ++i) {
      const int output = i * kRecordOutputs + r;
      const uint4 lower = LoadShared(codes + PlaceOfFp8Codes(output, quantum * 4 + t));
      const uint4 upper = LoadShared(codes + PlaceOfFp8Codes(output + 8, quantum * 4 + t));
#pragma unroll
      for (int step = 0; step < kFp8StepsPerQuantum; ++step) {
        const uint2 of_lower = ValuesOfE4M3<T>(WordOf(lower, step));
        const uint2 of_upper = ValuesOfE4M3<T>(WordOf(upper, step));
        fragments[i][step][0] = of_lower.x;
        fragments[i][step][1] = of_upper.x;
        fragments[i][step][2] = of_lower.y;
        fragments[i][step][3] = of_upper.y;
      }
    }
#pragma unroll
    for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
      const int row = (first_row_tile + tile) * 8 + r;
      const uint4 of_x[2] = {LoadShared(x + PlaceOfFp8X<Tiling>(row, quantum, 2 * t)),
                             LoadShared(x + PlaceOfFp8X<Tiling>(row, quantum, 2 * t + 1))};
#pragma unroll
      for (int i = 0; i < Tiling::kWarpRecords; ++i) {
        float products[4] = {};
        float(&to)[4] = sums[i][tile];
#pragma unroll
        for (int step = 0; step < kFp8StepsPerQuantum; ++step) {
          const auto& a = fragments[i][step];
          const uint32_t b0 = WordOf(of_x[step / 2], step % 2 * 2);
          const uint32_t b1 = WordOf(of_x[step / 2], step % 2 * 2 + 1);
          MultiplyAdd<T>(kGroupScales ? products : to, a[0], a[1], a[2], a[3], b0, b1);
        }
        if constexpr (kGroupScales) {
          to[0] = fmaf(scales[i].x, products[0], to[0]);
          to[1] = fmaf(scales[i].x, products[1], to[1]);
          to[2] = fmaf(scales[i].y, products[2], to[2]);
          to[3] = fmaf(scales[i].y, products[3], to[3]);
        }
      }
    }
  }
}

#endif

// Grid: blocks of rows, then of outputs, then parts of the slices.
template <typename T, bool kGroupScales, typename Tiling>
__global__ void __launch_bounds__(kQuantizedThreads, Tiling::kBlocksPerSm)
    Fp8LinearKernel(const Fp8Product product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Plan = Fp8SharedPlan<Tiling>;
  extern __shared__ __align__(128) unsigned char shared[];
  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int output_warp = warp % Tiling::kOutputWarps;
  const int row_warp = warp / Tiling::kOutputWarps;
  const int first_row = static_cast<int>(blockIdx.x) * Tiling::kRows;
  const int rows = min(Tiling::kRows, product.rows - first_row);
  const int first_output = static_cast<int>(blockIdx.y) * kBlockOutputs;
  const int split = static_cast<int>(blockIdx.z);
  const int first_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * split / product.num_splits);
  const int end_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * (split + 1) / product.num_splits);
  const int num_slices = end_slice - first_slice;

  Fp8Requests<Tiling> requests;
  requests.policy = StreamingPolicy();
  requests.codes = static_cast<const unsigned char*>(product.records) +
                   static_cast<int64_t>(first_output) * product.in_features;
  requests.outputs = product.out_features - first_output;
  requests.x_stride_bytes = product.x_stride * 2;
  requests.x = static_cast<const unsigned char*>(product.x) + first_row * requests.x_stride_bytes;
  requests.rows = rows;
  requests.in_features = product.in_features;

  const auto ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const auto stage_at = [ring](int slot) { return ring + static_cast<uint32_t>(slot * Plan::kStageBytes); };
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.Codes(stage_at(i), first_slice + i, thread);
  }
  // Of the warp's first output in the block.
  const int warp_output = output_warp * Tiling::kWarpRecords * kRecordOutputs;
  const auto load_scales = [&](float2(&scales)[Tiling::kWarpRecords], int slice) {
    const int group = slice / product.slices_per_group;
#pragma unroll
    for (int i = 0; i < Tiling::kWarpRecords; ++i) {
      const int output = first_output + warp_output + i * kRecordOutputs + lane / 4;
      const auto scale_of = [&](int o) {
        return __ldg(product.factors +
                     static_cast<int64_t>(min(o, product.out_features - 1)) * product.num_groups + group);
      };
      scales[i] = make_float2(scale_of(output), scale_of(output + 8));
    }
  };
  float2 scales[Tiling::kWarpRecords] = {};
  float2 next_scales[Tiling::kWarpRecords] = {};
  if constexpr (kGroupScales) load_scales(next_scales, first_slice);
  // Everything above is weights; x, y and the workspace belong to other kernels until here.
  WaitForPredecessors();
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.X(stage_at(i), first_slice + i, thread);
    CommitCopies();
  }

  float sums[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int i = 0; i < num_slices; ++i) {
    WaitForCopies<Plan::kDepth - 2>();
    __syncthreads();  // it is there for all, and all are done with the slice before
    const int free_slot = slot == 0 ? Plan::kDepth - 1 : slot - 1;
    if (i + Plan::kDepth - 1 < num_slices) {
      requests.Codes(stage_at(free_slot), first_slice + i + Plan::kDepth - 1, thread);
      requests.X(stage_at(free_slot), first_slice + i + Plan::kDepth - 1, thread);
    }
    CommitCopies();
    if constexpr (kGroupScales) {
#pragma unroll
      for (int record = 0; record < Tiling::kWarpRecords; ++record) scales[record] = next_scales[record];
      if (i + 1 < num_slices) load_scales(next_scales, first_slice + i + 1);
    }
    MultiplyFp8Slice<T, kGroupScales, Tiling>(
        sums, stage_at(slot) + static_cast<uint32_t>(warp_output * kFp8Slice),
        stage_at(slot) + Plan::kCodeBytes, row_warp * Tiling::kWarpRowTiles, scales, lane);
    slot = slot + 1 == Plan::kDepth ? 0 : slot + 1;
  }

  // [rows][128 outputs] in shared memory, from where neighbours are written together.
  WaitForCopies<0>();
  __syncthreads();
  auto* block_sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
    for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
      float* to = block_sums +
                  ((row_warp * Tiling::kWarpRowTiles + tile) * 8 + lane % 4 * 2) * Plan::kSumsPitch +
                  warp_output + i * kRecordOutputs + lane / 4;
      to[0] = sums[i][tile][0];
      to[Plan::kSumsPitch] = sums[i][tile][1];
      to[8] = sums[i][tile][2];
      to[Plan::kSumsPitch + 8] = sums[i][tile][3];
    }
  }
  __syncthreads();
  if (product.num_splits > 1) {
    const int unit = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    if (!AddParts<Tiling::kRows, Plan::kSumsPitch>(block_sums, product, unit, split, rows, thread)) return;
  }
  const int column = thread % kBlockOutputs;
  const int output = first_output + column;
  if (output >= product.out_features) return;
  const float scale = kGroupScales ? 1.0F : product.factors[output];
  const float bias = product.bias == nullptr ? 0.0F : product.bias[output];
  for (int row = thread / kBlockOutputs; row < rows; row += kQuantizedThreads / kBlockOutputs) {
    const float value = fmaf(block_sums[row * Plan::kSumsPitch + column], scale, bias);
    const int64_t at = (first_row + row) * product.y_stride + output;
    StoreResult<T>(product.y, product.y_is_f32, at, value);
  }
#else
  __trap();
#endif
}

template <typename T, bool kGroupScales, typename Tiling>
void LaunchFp8Tiling(CudaStream& stream, const Fp8Product& product) {
  static PerGpu<int> blocks_per_sm;
  LaunchBlocks<Tiling>("fp8 linear", stream, product, Fp8LinearKernel<T, kGroupScales, Tiling>,
                       Fp8SharedPlan<Tiling>::kBytes, &blocks_per_sm);
}

// The tiling for a number of rows, in the terms of LaunchFormat (quantized_kernel.cuh).
template <typename T, bool kGroupScales>
void LaunchFp8Scales(CudaStream& stream, const Fp8Product& product) {
  using Rows8 = BlockTiling<1, 1, 1, 4, 54 << 10>;
  using Rows16 = BlockTiling<1, 2, 1, 3, 72 << 10>;
  using Rows32 = BlockTiling<1, 4, 1, 2, 96 << 10>;
  using Rows64 = BlockTiling<2, 4, 2, 2, 96 << 10>;
  using Rows128 = BlockTiling<2, 8, 2, 1, 144 << 10>;
  if (product.rows <= kMaxSkinnyCodeRows &&
      kSkinnySharedBytes <= stream.target().max_shared_bytes_per_block) {
    return LaunchSkinnyFp8<T, kGroupScales>(stream, product);
  }
  TANDEM_CHECK(!product.is_gate_up);
  if (product.rows <= Rows8::kRows) return LaunchFp8Tiling<T, kGroupScales, Rows8>(stream, product);
  if (product.rows <= Rows16::kRows) return LaunchFp8Tiling<T, kGroupScales, Rows16>(stream, product);
  if (product.rows <= Rows32::kRows) return LaunchFp8Tiling<T, kGroupScales, Rows32>(stream, product);
  // Some GPUs (8.6, 8.9) have no room for 128 rows.
  if (product.rows <= Rows64::kRows ||
      Fp8SharedPlan<Rows128>::kBytes > stream.target().max_shared_bytes_per_block) {
    return LaunchFp8Tiling<T, kGroupScales, Rows64>(stream, product);
  }
  LaunchFp8Tiling<T, kGroupScales, Rows128>(stream, product);
}

template <typename T>
void LaunchFp8(CudaStream& stream, const Fp8Product& product) {
  product.has_row_scales ? LaunchFp8Scales<T, false>(stream, product)
                         : LaunchFp8Scales<T, true>(stream, product);
}

}  // namespace tandem
