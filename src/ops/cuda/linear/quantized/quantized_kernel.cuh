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
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/quantized_requests.cuh"
#include "ops/cuda/linear/quantized/quantized_slice.cuh"
#include "ops/cuda/linear/quantized/skinny_codes.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

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
  float sums[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4] = {};
  const int first_row_tile = row_warp * Tiling::kWarpRowTiles;
  const auto multiply = [&](int i, int slot) {
    Slice::Run(
        sums, stage_at(slot) + static_cast<uint32_t>(output_warp * Tiling::kWarpRecords * Plan::kRecordBytes),
        stage_at(slot) + Plan::kRecordsBytes, first_row_tile,
        sums_of_x + i % 2 * Plan::kSumsOfX + first_row_tile * 8, lane);
  };
  __shared__ __align__(8) uint64_t barriers[Plan::kDepth];
  const RecordRequests<Format, Tiling> records = {requests,
                                                  static_cast<uint32_t>(__cvta_generic_to_shared(barriers))};
  records.Prepare(thread);
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) records.Request(stage_at(i), i, first_slice + i, thread);
  }
  // Everything above is weights; x, y and the workspace belong to other kernels until here.
  WaitForPredecessors();
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.X(stage_at(i), first_slice + i, thread);
    CommitCopies();
  }
  if constexpr (Plan::kHasSumsOfX) {
    WaitForCopies<Plan::kDepth - 2>();
    __syncthreads();
    Slice::SumX(sums_of_x, stage_at(0) + Plan::kRecordsBytes, warp, lane);
  }
  int slot = 0;
  int round = 0;
#pragma unroll 1
  for (int i = 0; i < num_slices; ++i) {
    records.WaitFor(slot, round);
    // With sums of x that of the slice after this one has to be there too: it is summed up meanwhile.
    WaitForCopies<Plan::kDepth - (Plan::kHasSumsOfX ? 3 : 2)>();
    __syncthreads();  // it is there for all, and all are done with the slice before
    if (const int next = i + Plan::kDepth - 1; next < num_slices) {
      const int free_slot = slot == 0 ? Plan::kDepth - 1 : slot - 1;
      records.Request(stage_at(free_slot), free_slot, first_slice + next, thread);
      requests.X(stage_at(free_slot), first_slice + next, thread);
    }
    CommitCopies();
    const int next_slot = slot + 1 == Plan::kDepth ? 0 : slot + 1;
    if constexpr (Plan::kHasSumsOfX) {
      if (i + 1 < num_slices) {
        Slice::SumX(sums_of_x + (i + 1) % 2 * Plan::kSumsOfX, stage_at(next_slot) + Plan::kRecordsBytes, warp,
                    lane);
      }
    }
    multiply(i, slot);
    if (next_slot == 0) ++round;
    slot = next_slot;
  }
  WaitForCopies<0>();

  // [rows][128 outputs] in shared memory, from where neighbours are written together.
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
    StoreResult<T>(product.y, product.y_is_f32, at, value);
  }
#else
  __trap();
#endif
}

template <typename T, typename Format, typename Tiling>
void LaunchTiling(CudaStream& stream, QuantizedProduct product) {
  using Plan = SharedPlan<Format, Tiling>;
  auto* kernel = QuantizedLinearKernel<T, Format, Tiling>;
  static PerGpu<int> of_gpus;
  const int blocks_per_sm = of_gpus.Of(stream, [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes));
    // Room for blocks of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    int blocks = 0;
    TANDEM_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kQuantizedThreads, Plan::kBytes));
    return std::max(blocks, 1);
  });
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
  using Rows16 = BlockTiling<1, 2, 1, 2, 96 << 10>;
  using Rows32 = BlockTiling<1, 4, 1, 2, 96 << 10>;
  using Rows64 = BlockTiling<2, 4, 2, 2, 96 << 10>;
  using Rows128 = BlockTiling<2, 8, 2, 1, 96 << 10>;
  if (product.rows <= kMaxSkinnyCodeRows &&
      kSkinnySharedBytes <= stream.target().max_shared_bytes_per_block) {
    return LaunchSkinnyCodes<T, Format>(stream, product);
  }
  TANDEM_CHECK(!product.is_gate_up);
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
