// The streamed product as a kernel. Only for the units of this folder, compiled for 9.0a.
//
// The tensor core's rows are outputs and its columns are rows of x, so that few rows of x waste little. A
// block has one warp that loads (TMA) and two groups of four warps that multiply (wgmma) 64 outputs each. A
// worker, which is a block or a pair of them, walks its units of a WorkCut; its loads run ahead of its
// products across tiles, and those of the weight ahead of the stream's earlier kernels.
//
// Where a tile's sum is in parts, whoever of its workers ends last adds them: the others have left theirs in
// memory and gone on. So no block ever waits for another one, in whatever order they run. Parts are added in
// their order, whoever adds them.
#pragma once

// The library's headers lean on those before them.
// clang-format off
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/mma_sm90.hpp>
// clang-format on

#include <cstdint>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/linear/streamed/streamed_loader.cuh"
#include "ops/cuda/linear/streamed/streamed_results.cuh"
#include "ops/cuda/linear/streamed/streamed_shape.cuh"

namespace tandem {

template <typename T, StreamedLinear kKernel>
__global__ void __launch_bounds__(kStreamedThreads, 1)
    StreamedLinearKernel(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ StreamedArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = StreamedShape<T, kKernel>;
  using Barrier = cutlass::arch::ClusterBarrier;
  using Element = typename Shape::Element;
  extern __shared__ unsigned char shared[];
  unsigned char* weight_stages =
      shared +
      (Shape::kAlignment - cute::cast_smem_ptr_to_uint(shared) % Shape::kAlignment) % Shape::kAlignment;
  unsigned char* x_stages = weight_stages + Shape::kStages * Shape::kWeightBytes;
  auto* full = reinterpret_cast<uint64_t*>(x_stages + Shape::kStages * Shape::kXBytes);
  uint64_t* empty = full + Shape::kStages;
  int* flags = reinterpret_cast<int*>(empty + Shape::kStages);

  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const int worker = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const int rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
  const WorkCut& cut = arguments.cut;
  const bool loads = warp == kStreamedMultiplyWarps;

  if (loads && lane == 0) {
    cute::prefetch_tma_descriptor(&weight);
    cute::prefetch_tma_descriptor(&x);
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      Barrier::init(full + stage, 1);
      Barrier::init(empty + stage, kStreamedMultiplyWarps * Shape::kCluster);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::fence_barrier_init();
  }
  StreamedLoader<Shape, StreamedMatrix<Shape>> loader({weight}, x, arguments, worker, rank, lane,
                                                      weight_stages, x_stages, full, empty);
  __syncwarp();
  if (loads) loader.RequestFirstWeights();
  __syncwarp();
  if constexpr (Shape::kCluster > 1) {
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
  } else {
    __syncthreads();
  }

  // Everything above is weights; x, y and the workspace belong to other kernels until here.
  WaitForPredecessors();

  const int group = warp / 4;
  if (group == kStreamedGroups) {
    cutlass::arch::warpgroup_reg_dealloc<kStreamedLoadRegisters>();
    if (loads) loader.RequestRest();
    return;
  }

  cutlass::arch::warpgroup_reg_alloc<kStreamedMultiplyRegisters>();
  typename Shape::Mma mma;
  const auto slice = mma.get_slice(group * kStreamedGroupThreads);
  const auto weight_tiles = slice.make_fragment_A(slice.partition_A(cute::make_tensor(
      cute::make_smem_ptr(reinterpret_cast<Element*>(weight_stages)), typename Shape::WeightLayout{})));
  const auto x_tiles = slice.make_fragment_B(slice.partition_B(cute::make_tensor(
      cute::make_smem_ptr(reinterpret_cast<Element*>(x_stages)), typename Shape::XLayout{})));
  auto sums = cute::partition_fragment_C(mma, cute::take<0, 2>(typename Shape::Tile{}));
  static_assert(decltype(cute::size(sums))::value == Shape::kSums);
  // The stage may be filled anew, here and, as its x is for both, in the pair's other block.
  const auto release = [&](int stage) {
    if constexpr (Shape::kCluster > 1) {
      Barrier::arrive(empty + stage, static_cast<uint32_t>(lane), lane < Shape::kCluster);
    } else {
      if (lane == 0) Barrier::arrive(empty + stage);
    }
  };

  const int blocks_of_rows = (arguments.rows + 7) / 8;
  const int end = cut.Begin(worker + 1);
  int stage = 0;
  uint32_t phase = 0;
  for (int unit = cut.Begin(worker); unit < end;) {
    const int tile = unit / cut.num_steps;
    const int num_steps = min(end, (tile + 1) * cut.num_steps) - unit;
    int used_stage = 0;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    cute::warpgroup_fence_operand(sums);
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
      Barrier::wait(full + stage, phase);
      cute::warpgroup_fence_operand(sums);
      cute::warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < cute::size<2>(weight_tiles); ++k) {
        cute::gemm(mma, weight_tiles(cute::_, cute::_, k, stage), x_tiles(cute::_, cute::_, k, stage), sums);
        mma.accumulate_ = cute::GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      cute::warpgroup_fence_operand(sums);
      if (i > 0) release(used_stage);
      used_stage = stage;
      if (++stage == Shape::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(sums);
    release(used_stage);
    unit += num_steps;

    const WorkCut::Parts parts = cut.PartsOf(tile);
    const bool complete = parts.count == 1 || JoinParts<Shape>(arguments.workspace, parts, worker, rank,
                                                               group, thread % kStreamedGroupThreads,
                                                               blocks_of_rows, flags + group, sums);
    if (complete) {
      const int first_output = (tile * Shape::kCluster + rank) * Shape::kOutputs +
                               group * (Shape::kOutputs / kStreamedGroups) + warp % 4 * 16;
      WriteResults<T, Shape>(arguments, /*first_row=*/0, first_output, lane, sums);
    }
  }
#else
  __trap();
#endif
}

template <typename T, StreamedLinear kKernel>
void LaunchStreamed(CudaStream& stream, const StreamedMaps& maps, const StreamedArguments& arguments) {
  using Shape = StreamedShape<T, kKernel>;
  constexpr auto kFunction = StreamedLinearKernel<T, kKernel>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
    return true;
  }));
  const auto num_blocks = static_cast<unsigned>(arguments.cut.num_workers * Shape::kCluster);
  LaunchClusters("streamed linear", kFunction, dim3(num_blocks), dim3(Shape::kCluster),
                 dim3(kStreamedThreads), Shape::kSharedBytes, stream, maps.weight, maps.x, arguments);
}

template <typename T>
void LaunchStreamedKernel(CudaStream& stream, StreamedLinear kernel, const StreamedMaps& maps,
                          const StreamedArguments& arguments) {
  switch (kernel) {
    case StreamedLinear::k64:
      return LaunchStreamed<T, StreamedLinear::k64>(stream, maps, arguments);
    case StreamedLinear::k64Pairs:
      return LaunchStreamed<T, StreamedLinear::k64Pairs>(stream, maps, arguments);
    case StreamedLinear::k128:
      return LaunchStreamed<T, StreamedLinear::k128>(stream, maps, arguments);
    case StreamedLinear::k128Pairs:
      return LaunchStreamed<T, StreamedLinear::k128Pairs>(stream, maps, arguments);
    case StreamedLinear::k192Pairs:
      return LaunchStreamed<T, StreamedLinear::k192Pairs>(stream, maps, arguments);
    case StreamedLinear::k256Pairs:
      return LaunchStreamed<T, StreamedLinear::k256Pairs>(stream, maps, arguments);
    default:
      TANDEM_CHECK(false, "no streamed product");
  }
}

}  // namespace tandem
