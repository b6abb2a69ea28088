// The kernels of quantized_linear.h for compute capability 7.5, fp16. Up to 8 rows they are those of
// skinny_codes_direct.cuh; of more rows a block computes 128 outputs (two panels) for up to 64 rows over a
// part of the slices, as in quantized_kernel.cuh, and what the next slice needs comes through registers into
// the other of two places in shared memory.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/quantized_results.cuh"
#include "ops/cuda/linear/quantized/quantized_slice.cuh"
#include "ops/cuda/linear/quantized/skinny_codes_direct.cuh"
#include "ops/cuda/register_loads.cuh"

namespace tandem {

// What lies where in shared memory: two stages as SharedPlan has them, sums of x behind them. After the
// products the sums take their place.
template <typename Format, typename Tiling>
struct DirectPlan {
  using Stage = SharedPlan<Format, Tiling>;
  static constexpr int kSumsOfX = Stage::kSumsOfX;  // of a stage
  static constexpr int kBytes = std::max(2 * Stage::kStageBytes + Stage::kSumsOfXBytes, Stage::kSumsBytes);
  static_assert(kBytes <= 64 << 10, "what compute capability 7.5 has");
};

// One slice on its way: every thread has the same places of every slice.
template <typename Format, typename Tiling>
struct SliceInRegisters {
  using Stage = SharedPlan<Format, Tiling>;
  static constexpr int kSliceSize = Format::kLayout.slice_size();
  static constexpr int kPanelChunks = Stage::kRecordsBytes / 2 / 16;
  static constexpr int kRowChunks = kSliceSize / 8;
  static constexpr int kRecordLoads = (2 * kPanelChunks + kQuantizedThreads - 1) / kQuantizedThreads;
  static constexpr int kXLoads = (Tiling::kRows * kRowChunks + kQuantizedThreads - 1) / kQuantizedThreads;

  uint4 records[kRecordLoads];
  uint4 x[kXLoads];

  // from: the block's first panel; the second one may not exist. x: of the block's first row.
  __device__ __forceinline__ void Load(const unsigned char* from, int64_t panel_bytes, bool has_both_panels,
                                       const __half* x_from, int64_t x_stride, int rows, int in_features,
                                       int slice, int thread) {
#pragma unroll
    for (int i = 0; i < kRecordLoads; ++i) {
      const int chunk = i * kQuantizedThreads + thread;
      const int panel = chunk / kPanelChunks;
      records[i] = make_uint4(0, 0, 0, 0);
      if (chunk < (has_both_panels ? 2 : 1) * kPanelChunks) {
        records[i] = LoadOnce(from + panel * panel_bytes + static_cast<int64_t>(slice) * (kPanelChunks * 16) +
                              (chunk - panel * kPanelChunks) * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < kXLoads; ++i) {
      const int number = i * kQuantizedThreads + thread;
      const int row = number / kRowChunks;
      const int k = slice * kSliceSize + number % kRowChunks * 8;
      x[i] = make_uint4(0, 0, 0, 0);
      if (row < rows && k < in_features) x[i] = *reinterpret_cast<const uint4*>(x_from + row * x_stride + k);
    }
  }

  __device__ __forceinline__ void Store(unsigned char* stage, int thread) const {
#pragma unroll
    for (int i = 0; i < kRecordLoads; ++i) {
      const int chunk = i * kQuantizedThreads + thread;
      if (chunk < 2 * kPanelChunks) *reinterpret_cast<uint4*>(stage + chunk * 16) = records[i];
    }
#pragma unroll
    for (int i = 0; i < kXLoads; ++i) {
      const int number = i * kQuantizedThreads + thread;
      if (number < Tiling::kRows * kRowChunks) {
        *reinterpret_cast<uint4*>(stage + Stage::kRecordsBytes + number / kRowChunks * Stage::kXPitch +
                                  number % kRowChunks * 16) = x[i];
      }
    }
  }
};

// Grid: as LaunchBlocks has it.
template <typename Format, typename Tiling>
__global__ void __launch_bounds__(kQuantizedThreads, Tiling::kBlocksPerSm)
    QuantizedDirectKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  using Plan = SharedPlan<Format, Tiling>;
  using Slice = SliceProduct<__half, Format, Tiling>;
  extern __shared__ __align__(128) unsigned char shared[];
  AllowSuccessors();
  WaitForPredecessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int output_warp = warp % Tiling::kOutputWarps;
  const int first_row_tile = warp / Tiling::kOutputWarps * Tiling::kWarpRowTiles;
  const int first_row = static_cast<int>(blockIdx.x) * Tiling::kRows;
  const int rows = min(Tiling::kRows, product.rows - first_row);
  const int first_output = static_cast<int>(blockIdx.y) * kBlockOutputs;
  const int split = static_cast<int>(blockIdx.z);
  const int first_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * split / product.num_splits);
  const int end_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * (split + 1) / product.num_splits);
  const int64_t panel_bytes = static_cast<int64_t>(product.num_slices) * (Plan::kRecordsBytes / 2);
  const auto* records = static_cast<const unsigned char*>(product.records) +
                        static_cast<int64_t>(first_output / kCodePanelOutputs) * panel_bytes;
  const bool has_both_panels = product.out_features - first_output > kCodePanelOutputs;
  const auto* x = static_cast<const __half*>(product.x) + first_row * product.x_stride;

  SliceInRegisters<Format, Tiling> ahead;
  const auto load = [&](int slice) {
    if (slice < end_slice) {
      ahead.Load(records, panel_bytes, has_both_panels, x, product.x_stride, rows, product.in_features, slice,
                 thread);
    }
  };
  const auto stage_at = [&](int slice) { return shared + (slice - first_slice) % 2 * Plan::kStageBytes; };
  auto* sums_of_x = reinterpret_cast<float*>(shared + 2 * Plan::kStageBytes);
  float sums[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4] = {};
  load(first_slice);
  ahead.Store(stage_at(first_slice), thread);
  load(first_slice + 1);
#pragma unroll 1
  for (int slice = first_slice; slice < end_slice; ++slice) {
    __syncthreads();  // it is there for all, and all are done with the slice before
    const auto stage = static_cast<uint32_t>(__cvta_generic_to_shared(stage_at(slice)));
    if constexpr (Plan::kHasSumsOfX) {
      Slice::SumX(sums_of_x, stage + Plan::kRecordsBytes, warp, lane);
      __syncthreads();
    }
    Slice::Run(sums, stage + static_cast<uint32_t>(output_warp * Tiling::kWarpRecords * Plan::kRecordBytes),
               stage + Plan::kRecordsBytes, first_row_tile, sums_of_x + first_row_tile * 8, lane);
    if (slice + 1 < end_slice) ahead.Store(stage_at(slice + 1), thread);
    load(slice + 2);
  }
  StoreBlock<__half, Tiling>(product, sums, reinterpret_cast<float*>(shared));
#else
  __trap();
#endif
}

template <typename Format, typename Tiling>
void LaunchDirectTiling(CudaStream& stream, const QuantizedProduct& product) {
  static PerGpu<int> blocks_per_sm;
  LaunchBlocks<Tiling>("quantized linear", stream, product, QuantizedDirectKernel<Format, Tiling>,
                       DirectPlan<Format, Tiling>::kBytes, &blocks_per_sm);
}

template <int kBits, int kGroupSize, bool kHasMinimum>
void LaunchDirectFormat(CudaStream& stream, const QuantizedProduct& product) {
  using Format = RecordFormat<kBits, kGroupSize, kHasMinimum>;
  using Rows16 = BlockTiling<1, 2, 1, 2, 0>;
  using Rows32 = BlockTiling<1, 4, 1, 1, 0>;
  using Rows64 = BlockTiling<2, 4, 2, 1, 0>;
  if (product.rows <= kMaxSkinnyCodeRows) return LaunchSkinnyCodesDirect<Format>(stream, product);
  TANDEM_CHECK(!product.is_gate_up);
  if (product.rows <= Rows16::kRows) return LaunchDirectTiling<Format, Rows16>(stream, product);
  if (product.rows <= Rows32::kRows) return LaunchDirectTiling<Format, Rows32>(stream, product);
  LaunchDirectTiling<Format, Rows64>(stream, product);
}

// kGroupSizes: that MakeCodeLayout gives to codes of kBits.
template <int kBits, int... kGroupSizes>
void LaunchDirectCodes(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  const auto launch = [&](auto with, auto without) {
    (layout.has_minimum ? with : without)(stream, product);
  };
  const bool launched =
      ((layout.group_size == kGroupSizes && (launch(&LaunchDirectFormat<kBits, kGroupSizes, true>,
                                                    &LaunchDirectFormat<kBits, kGroupSizes, false>),
                                             true)) ||
       ...);
  TANDEM_CHECK(launched, "codes of {} bits in groups of {}", kBits, layout.group_size);
}

}  // namespace tandem
