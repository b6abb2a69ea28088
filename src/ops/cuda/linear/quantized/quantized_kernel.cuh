// The kernel of quantized_linear.h.
//
// A block computes 128 outputs (two panels) for up to 128 rows over a part of the slices. What a slice needs,
// the records and a piece of x, comes into a ring in shared memory; the records of the first slices are
// requested before the stream's earlier kernels have ended. Warps divide outputs and rows between them.
// Blocks that share outputs leave their sums in the workspace, and the last of them adds these up, always in
// the same order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kQuantizedThreads = 256;
constexpr int kQuantizedWarps = kQuantizedThreads / 32;
constexpr int kBlockOutputs = 2 * kCodePanelOutputs;
constexpr int kBlockRecords = kBlockOutputs / kRecordOutputs;

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
  static_assert(kOutputWarps * kWarpRecords == kBlockRecords);
};

// What lies where in shared memory. After the products the sums take the place of the ring.
template <typename Format, typename Tiling>
struct SharedPlan {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  static constexpr int kRecordsBytes = kBlockRecords * kRecordBytes;
  static constexpr int kXBytes = Tiling::kRows * kLayout.slice_size() * 2;
  static constexpr int kStageBytes = kRecordsBytes + kXBytes;
  // Sums of x for each group and row of two stages.
  static constexpr int kSumsOfX = kLayout.has_minimum ? kLayout.groups_per_slice() * Tiling::kRows : 0;
  static constexpr int kSumsOfXBytes = 2 * kSumsOfX * 4;
  static constexpr int kMinDepth = 3;
  static constexpr int kMaxDepth = 8;
  static constexpr int kFitting = (Tiling::kSharedBudget - kSumsOfXBytes) / kStageBytes;
  static constexpr int kDepth = std::clamp(kFitting, kMinDepth, kMaxDepth);
  // A warp's stores of sums meet no bank twice.
  static constexpr int kSumsPitch = kBlockOutputs + 4;
  static constexpr int kSumsBytes = Tiling::kRows * kSumsPitch * 4;
  static constexpr int kBytes = std::max(kDepth * kStageBytes + kSumsOfXBytes, kSumsBytes);
  static_assert(kStageBytes % 16 == 0);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ __forceinline__ float2 TwoFloats(uint32_t two_halves) {
  return __half22float2(*reinterpret_cast<const __half2*>(&two_halves));
}

// One slice that has arrived: where its parts are, and what a lane holds of it.
template <typename T, typename Format, typename Tiling>
struct SliceProduct {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kSteps = kLayout.slice_size() / 16;
  // Groups of 16 are a step each; others take x in quanta of two steps.
  static constexpr bool kStepGroups = kLayout.group_size == 16;
  static constexpr int kStepsPerGroup = kLayout.group_size / 16;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kChunks = kLayout.code_bytes() / 512;
  static constexpr int kNumbers = kLayout.numbers_per_group();

  // The elements of x, of row `lane / 4` of a tile of 8 rows, that belong to steps 2 * quantum and the next:
  // {b0, b1} of the first, then of the second. tile: the first row of the tile in the stage's x. Rows are 128
  // bytes; beyond 64 elements there is another matrix of them. Odd rows have their halves exchanged.
  static __device__ __forceinline__ uint4 LoadX(uint32_t x, int row_tile, int quantum, int lane) {
    const int r = lane / 4;
    const int t = lane % 4;
    const uint32_t row = x + static_cast<uint32_t>((quantum / 2 * Tiling::kRows + row_tile * 8 + r) * 128);
    if constexpr (kStepGroups) {
      const int chunk = quantum % 2 * 4 + t / 2;
      const int exchange = r % 2 * 4;
      const uint32_t in_chunk = static_cast<uint32_t>(t % 2 * 8);
      const uint2 first = LoadShared8(row + static_cast<uint32_t>((chunk ^ exchange) * 16) + in_chunk);
      const uint2 second = LoadShared8(row + static_cast<uint32_t>(((chunk + 2) ^ exchange) * 16) + in_chunk);
      return make_uint4(first.x, first.y, second.x, second.y);
    } else {
      return LoadShared(row + static_cast<uint32_t>(((quantum % 2 * 4 + t) ^ (r % 2 * 4)) * 16));
    }
  }

  static __device__ __forceinline__ void Values(uint32_t (&fragments)[4], const uint4 (&words)[kChunks],
                                                int step) {
    if constexpr (kLayout.bits == 4) {
      const uint4& chunk = words[step / 4];
      const int word = step % 4;
      ValuesOf4Bits<T, kLayout.zero_code()>(fragments, word == 0   ? chunk.x
                                                       : word == 1 ? chunk.y
                                                       : word == 2 ? chunk.z
                                                                   : chunk.w);
    } else {
      const uint4& chunk = words[step / 2];
      if (step % 2 == 0) {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.x, chunk.y);
      } else {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.z, chunk.w);
      }
    }
  }

  // records: of the warp's first; sums_of_x: [groups][rows], of the warp's first row.
  static __device__ __forceinline__ void Run(float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4],
                                             uint32_t records, uint32_t x, int first_row_tile,
                                             const float* sums_of_x, int lane) {
    constexpr int kRecordBytes = kLayout.record_bytes();
    constexpr int kCodeBytes = kLayout.code_bytes();
    uint4 words[Tiling::kWarpRecords][kChunks];
#pragma unroll
    for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        words[i][chunk] =
            LoadShared(records + static_cast<uint32_t>(i * kRecordBytes + chunk * 512 + lane * 16));
      }
    }
    // A span is what is taken from codes to sums at once: a group, or the two groups of a quantum.
    constexpr int kSpanSteps = kStepGroups ? 2 : kStepsPerGroup;
    constexpr int kSpanGroups = kStepGroups ? 2 : 1;
#pragma unroll
    for (int span = 0; span < kSteps / kSpanSteps; ++span) {
      uint32_t fragments[Tiling::kWarpRecords][kSpanSteps][4];
      float2 scales[Tiling::kWarpRecords][kSpanGroups];    // of r and r + 8
      float2 minimums[Tiling::kWarpRecords][kSpanGroups];  // only with minimum
#pragma unroll
      for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
        for (int step = 0; step < kSpanSteps; ++step) {
          Values(fragments[i][step], words[i], span * kSpanSteps + step);
        }
#pragma unroll
        for (int g = 0; g < kSpanGroups; ++g) {
          const int at = (lane / 4 * kGroups + span * kSpanGroups + g) * kNumbers * 4;
          const uint32_t from = records + static_cast<uint32_t>(i * kRecordBytes + kCodeBytes + at);
          if constexpr (kLayout.has_minimum) {
            const uint2 both = LoadShared8(from);
            scales[i][g] = TwoFloats(both.x);
            minimums[i][g] = TwoFloats(both.y);
          } else {
            scales[i][g] = TwoFloats(LoadShared4(from));
          }
        }
      }
#pragma unroll
      for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
        float products[Tiling::kWarpRecords][kSpanGroups][4] = {};
#pragma unroll
        for (int quantum = 0; quantum < kSpanSteps / 2; ++quantum) {
          const uint4 of_x = LoadX(x, first_row_tile + tile, span * kSpanSteps / 2 + quantum, lane);
#pragma unroll
          for (int i = 0; i < Tiling::kWarpRecords; ++i) {
            const auto& first = fragments[i][2 * quantum];
            const auto& second = fragments[i][2 * quantum + 1];
            MultiplyAdd<T>(products[i][0], first[0], first[1], first[2], first[3], of_x.x, of_x.y);
            MultiplyAdd<T>(products[i][kSpanGroups - 1], second[0], second[1], second[2], second[3], of_x.z,
                           of_x.w);
          }
        }
#pragma unroll
        for (int g = 0; g < kSpanGroups; ++g) {
          float2 of_x = make_float2(0.0F, 0.0F);  // of the rows of this lane's results
          if constexpr (kLayout.has_minimum) {
            of_x = *reinterpret_cast<const float2*>(sums_of_x + (span * kSpanGroups + g) * Tiling::kRows +
                                                    tile * 8 + lane % 4 * 2);
          }
#pragma unroll
          for (int i = 0; i < Tiling::kWarpRecords; ++i) {
            float(&to)[4] = sums[i][tile];
            to[0] = fmaf(scales[i][g].x, products[i][g][0], to[0]);
            to[1] = fmaf(scales[i][g].x, products[i][g][1], to[1]);
            to[2] = fmaf(scales[i][g].y, products[i][g][2], to[2]);
            to[3] = fmaf(scales[i][g].y, products[i][g][3], to[3]);
            if constexpr (kLayout.has_minimum) {
              to[0] = fmaf(minimums[i][g].x, of_x.x, to[0]);
              to[1] = fmaf(minimums[i][g].x, of_x.y, to[1]);
              to[2] = fmaf(minimums[i][g].y, of_x.x, to[2]);
              to[3] = fmaf(minimums[i][g].y, of_x.y, to[3]);
            }
          }
        }
      }
    }
  }

  // sums_of_x[groups][rows] of a slice, by products with ones: exact terms, in fp32. All warps.
  static __device__ __forceinline__ void SumX(float* sums_of_x, uint32_t x, int warp, int lane) {
    const uint32_t ones = TwoOnes<T>();
    for (int tile = warp; tile < Tiling::kRows / 8; tile += kQuantizedWarps) {
      float products[kGroups][4] = {};
#pragma unroll
      for (int quantum = 0; quantum < kSteps / 2; ++quantum) {
        const uint4 of_x = LoadX(x, tile, quantum, lane);
        MultiplyAdd<T>(products[2 * quantum / kStepsPerGroup], ones, ones, ones, ones, of_x.x, of_x.y);
        MultiplyAdd<T>(products[(2 * quantum + 1) / kStepsPerGroup], ones, ones, ones, ones, of_x.z, of_x.w);
      }
      // All outputs of this product are the same: those of lanes 0 to 3 are stored.
      if (lane < 4) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          *reinterpret_cast<float2*>(sums_of_x + g * Tiling::kRows + tile * 8 + lane * 2) =
              make_float2(products[g][0], products[g][1]);
        }
      }
    }
  }
};

// Brings slices into the ring. Every thread copies the same places of every stage.
template <typename Format, typename Tiling>
struct SliceRequests {
  using Plan = SharedPlan<Format, Tiling>;
  static constexpr int kSliceSize = Format::kLayout.slice_size();

  uint64_t policy;
  const unsigned char* records;  // of the block's first panel
  int64_t panel_bytes;
  int num_panels;  // 1 or 2
  const unsigned char* x;
  int64_t x_stride_bytes;
  int rows;
  int in_features;

  __device__ __forceinline__ void Records(uint32_t stage, int slice, int thread) const {
    constexpr int kPanelChunks = Plan::kRecordsBytes / 2 / 16;
    const unsigned char* from = records + static_cast<int64_t>(slice) * (Plan::kRecordsBytes / 2);
#pragma unroll
    for (int begin = 0; begin < 2 * kPanelChunks; begin += kQuantizedThreads) {
      const int chunk = begin + thread;
      if (chunk >= 2 * kPanelChunks) break;
      const int panel = chunk / kPanelChunks;
      const int64_t offset = panel * panel_bytes + (chunk - panel * kPanelChunks) * 16;
      CopyAsync(stage + static_cast<uint32_t>(chunk * 16), from + (panel < num_panels ? offset : 0),
                panel < num_panels, policy);
    }
  }

  __device__ __forceinline__ void X(uint32_t stage, int slice, int thread) const {
    constexpr int kRowChunks = kSliceSize / 8;
    constexpr int kNumChunks = Tiling::kRows * kRowChunks;
    const uint32_t to = stage + Plan::kRecordsBytes;
#pragma unroll
    for (int begin = 0; begin < kNumChunks; begin += kQuantizedThreads) {
      const int number = begin + thread;
      if (number >= kNumChunks) break;
      const int row = number / kRowChunks;
      const int chunk = number % kRowChunks;
      const int k = slice * kSliceSize + chunk * 8;
      const bool valid = row < rows && k < in_features;
      const uint32_t at =
          static_cast<uint32_t>((chunk / 8 * Tiling::kRows + row) * 128 + ((chunk % 8) ^ (row % 2 * 4)) * 16);
      CopyAsync(to + at, x + (valid ? row * x_stride_bytes + k * 2 : 0), valid);
    }
  }
};

// Sums of a block's part of the slices become those of all: true for the block that arrives last, whose sums
// they then are. sums: shared memory, [rows][pitch].
template <int kRows, int kPitch>
__device__ __forceinline__ bool AddParts(float* sums, const QuantizedProduct& product, int unit, int split,
                                         int rows, int thread) {
  constexpr int kRowVectors = kBlockOutputs / 4;
  constexpr int kPartFloats = kRows * kBlockOutputs;
  auto* parts = reinterpret_cast<float4*>(product.workspace.partials +
                                          static_cast<int64_t>(unit) * product.num_splits * kPartFloats);
  float4* own = parts + static_cast<int64_t>(split) * (kPartFloats / 4);
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    own[i] = *reinterpret_cast<const float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4);
  }
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (thread == 0) {
    is_last =
        atomicAdd(product.workspace.counters + unit, 1U) == static_cast<uint32_t>(product.num_splits - 1);
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    float4 total = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 8
    for (int s = 0; s < product.num_splits; ++s) {
      const float4 part = __ldcg(parts + static_cast<int64_t>(s) * (kPartFloats / 4) + i);
      total.x += part.x;
      total.y += part.y;
      total.z += part.z;
      total.w += part.w;
    }
    *reinterpret_cast<float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4) = total;
  }
  if (thread == 0) product.workspace.counters[unit] = 0;
  __syncthreads();
  return true;
}

#endif

// Grid: blocks of rows, then of outputs, then parts of the slices.
template <typename T, typename Format, typename Tiling>
__global__ void __launch_bounds__(kQuantizedThreads, Tiling::kBlocksPerSm)
    QuantizedLinearKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Plan = SharedPlan<Format, Tiling>;
  using Slice = SliceProduct<T, Format, Tiling>;
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

  SliceRequests<Format, Tiling> requests;
  requests.policy = StreamingPolicy();
  requests.panel_bytes = static_cast<int64_t>(product.num_slices) * (Plan::kRecordsBytes / 2);
  requests.records = static_cast<const unsigned char*>(product.records) +
                     static_cast<int64_t>(first_output / kCodePanelOutputs) * requests.panel_bytes;
  requests.num_panels = product.out_features - first_output > kCodePanelOutputs ? 2 : 1;
  requests.x_stride_bytes = product.x_stride * 2;
  requests.x = static_cast<const unsigned char*>(product.x) + first_row * requests.x_stride_bytes;
  requests.rows = rows;
  requests.in_features = product.in_features;

  const auto ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  auto* sums_of_x = reinterpret_cast<float*>(shared + Plan::kDepth * Plan::kStageBytes);
  const auto stage_at = [ring](int slot) { return ring + static_cast<uint32_t>(slot * Plan::kStageBytes); };
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.Records(stage_at(i), first_slice + i, thread);
  }
  // Everything above is weights; x, y and the workspace belong to other kernels until here.
  WaitForPredecessors();
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.X(stage_at(i), first_slice + i, thread);
    CommitCopies();
  }

  constexpr bool kHasMinimum = Format::kLayout.has_minimum;
  if constexpr (kHasMinimum) {
    WaitForCopies<Plan::kDepth - 2>();
    __syncthreads();
    Slice::SumX(sums_of_x, stage_at(0) + Plan::kRecordsBytes, warp, lane);
  }
  float sums[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int i = 0; i < num_slices; ++i) {
    // With minimums the slice after this one has to be there too: its x is summed up meanwhile.
    WaitForCopies<Plan::kDepth - (kHasMinimum ? 3 : 2)>();
    __syncthreads();  // it is there for all, and all are done with the slice before
    const int free_slot = slot == 0 ? Plan::kDepth - 1 : slot - 1;
    if (i + Plan::kDepth - 1 < num_slices) {
      requests.Records(stage_at(free_slot), first_slice + i + Plan::kDepth - 1, thread);
      requests.X(stage_at(free_slot), first_slice + i + Plan::kDepth - 1, thread);
    }
    CommitCopies();
    const int next_slot = slot + 1 == Plan::kDepth ? 0 : slot + 1;
    if constexpr (kHasMinimum) {
      if (i + 1 < num_slices) {
        Slice::SumX(sums_of_x + (i + 1) % 2 * Plan::kSumsOfX, stage_at(next_slot) + Plan::kRecordsBytes, warp,
                    lane);
      }
    }
    const int first_row_tile = row_warp * Tiling::kWarpRowTiles;
    Slice::Run(
        sums, stage_at(slot) + static_cast<uint32_t>(output_warp * Tiling::kWarpRecords * Plan::kRecordBytes),
        stage_at(slot) + Plan::kRecordsBytes, first_row_tile,
        sums_of_x + i % 2 * Plan::kSumsOfX + first_row_tile * 8, lane);
    slot = next_slot;
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
                  (output_warp * Tiling::kWarpRecords + i) * kRecordOutputs + lane / 4;
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
  const float factor = product.factors[output];
  const float bias = product.bias == nullptr ? 0.0F : product.bias[output];
  for (int row = thread / kBlockOutputs; row < rows; row += kQuantizedThreads / kBlockOutputs) {
    const float value = fmaf(block_sums[row * Plan::kSumsPitch + column], factor, bias);
    const int64_t at = (first_row + row) * product.y_stride + output;
    if (product.y_is_f32) {
      static_cast<float*>(product.y)[at] = value;
    } else {
      StoreRounded(static_cast<T*>(product.y) + at, value);
    }
  }
#else
  __trap();
#endif
}

template <typename T, typename Format, typename Tiling>
void LaunchTiling(CudaStream& stream, QuantizedProduct product) {
  using Plan = SharedPlan<Format, Tiling>;
  auto* kernel = QuantizedLinearKernel<T, Format, Tiling>;
  static const int blocks_per_sm = [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes));
    // Room for blocks of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    int blocks = 0;
    TANDEM_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kQuantizedThreads, Plan::kBytes));
    return std::max(blocks, 1);
  }();
  const int row_blocks = (product.rows + Tiling::kRows - 1) / Tiling::kRows;
  const int output_blocks = (product.out_features + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t units = static_cast<int64_t>(row_blocks) * output_blocks;
  const int splits = NumParts({.units = units,
                               .at_once = static_cast<int64_t>(stream.target().num_sms) * blocks_per_sm,
                               .num_slices = product.num_slices,
                               .rows = Tiling::kRows,
                               .unit_bytes = int64_t{Tiling::kRows} * kBlockOutputs * 4});
  product.num_splits = splits;
  TANDEM_CHECK(splits == 1 || product.workspace.partials != nullptr, "quantized linear: no workspace");
  LaunchKernel("quantized linear", kernel,
               dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(output_blocks),
                    static_cast<unsigned>(splits)),
               dim3(kQuantizedThreads), Plan::kBytes, stream, product);
}

// The tiling for a number of rows: records and tiles of 8 rows of a warp, warps with the same outputs, blocks
// of an SM, bytes of shared memory.
template <typename T, typename Format>
void LaunchFormat(CudaStream& stream, const QuantizedProduct& product) {
  using Rows8 = BlockTiling<1, 1, 1, 4, 54 << 10>;
  using Rows16 = BlockTiling<1, 2, 1, 3, 72 << 10>;
  using Rows32 = BlockTiling<1, 4, 1, 2, 96 << 10>;
  using Rows64 = BlockTiling<2, 4, 2, 2, 96 << 10>;
  using Rows128 = BlockTiling<2, 8, 2, 1, 96 << 10>;
  if (product.rows <= Rows8::kRows) return LaunchTiling<T, Format, Rows8>(stream, product);
  if (product.rows <= Rows16::kRows) return LaunchTiling<T, Format, Rows16>(stream, product);
  if (product.rows <= Rows32::kRows) return LaunchTiling<T, Format, Rows32>(stream, product);
  // Some GPUs (8.6, 8.9) have no room for the longest slices of 128 rows.
  if (product.rows <= Rows64::kRows ||
      SharedPlan<Format, Rows128>::kBytes > stream.target().max_shared_bytes_per_block) {
    return LaunchTiling<T, Format, Rows64>(stream, product);
  }
  LaunchTiling<T, Format, Rows128>(stream, product);
}

template <typename T, int kBits, int kGroupSize>
void LaunchGroupSize(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  layout.has_minimum ? LaunchFormat<T, RecordFormat<kBits, kGroupSize, true>>(stream, product)
                     : LaunchFormat<T, RecordFormat<kBits, kGroupSize, false>>(stream, product);
}

// kGroupSizes: that MakeCodeLayout gives to codes of kBits.
template <typename T, int kBits, int... kGroupSizes>
void LaunchCodes(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  const bool launched = ((layout.group_size == kGroupSizes &&
                          (LaunchGroupSize<T, kBits, kGroupSizes>(stream, layout, product), true)) ||
                         ...);
  TANDEM_CHECK(launched, "codes of {} bits in groups of {}", kBits, layout.group_size);
}

template <typename T>
void LaunchInt4(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchCodes<T, 4, 16, 32, 128>(stream, layout, product);
}
template <typename T>
void LaunchInt8(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchCodes<T, 8, 16, 32, 64>(stream, layout, product);
}

}  // namespace tandem
