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
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/quantized_requests.cuh"
#include "ops/cuda/linear/quantized/quantized_results.cuh"
#include "ops/cuda/linear/quantized/quantized_slice.cuh"
#include "ops/cuda/linear/quantized/skinny_codes.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

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

  StoreBlock<T, Tiling>(product, sums, reinterpret_cast<float*>(shared));
#else
  __trap();
#endif
}

template <typename T, typename Format, typename Tiling>
void LaunchTiling(CudaStream& stream, const QuantizedProduct& product) {
  static PerGpu<int> blocks_per_sm;
  LaunchBlocks<Tiling>("quantized linear", stream, product, QuantizedLinearKernel<T, Format, Tiling>,
                       SharedPlan<Format, Tiling>::kBytes, &blocks_per_sm);
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
