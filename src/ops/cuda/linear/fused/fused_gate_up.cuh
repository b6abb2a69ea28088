// The fused gate-up product as a kernel: CUTLASS's mainloop for Hopper (TMA, wgmma, specialized warps)
// between a schedule and an epilogue of our own. Only for the units of this folder, compiled for 9.0a.
#pragma once

// Programmatic dependent launch: the warp that loads waits for the predecessors, all else follows from its
// loads.
#define CUTLASS_ENABLE_GDC_FOR_SM90

// The library's headers lean on those before them.
// clang-format off
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cutlass/device_kernel.h>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_mma_decl.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/gemm/kernel/gemm_universal_decl.h>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp>
// clang-format on

#include <type_traits>

#include "base/matrix_view.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/fused/fused_gate_up.h"
#include "ops/cuda/linear/fused/gate_up_epilogue.cuh"
#include "ops/cuda/linear/fused/gate_up_tiles.cuh"

namespace tandem {

// T: Bf16 or Fp16. Schedule: CUTLASS's, cooperative (both groups of warps compute one tile) or pingpong (one
// tile each: one's epilogue runs beside the other's products). Tile: rows of x, rows of weight. Cluster:
// thread blocks along rows of x and along rows of weight; they load what they share once.
template <typename T, typename Schedule, int kTileRows, int kTileColumns, int kClusterRows,
          int kClusterColumns, int kStages>
struct FusedGateUpKernel {
  using Element = std::conditional_t<std::is_same_v<T, Bf16>, cutlass::bfloat16_t, cutlass::half_t>;
  using Tile = cute::Shape<cute::Int<kTileRows>, cute::Int<kTileColumns>, cute::Int<64>>;
  using Cluster = cute::Shape<cute::Int<kClusterRows>, cute::Int<kClusterColumns>, cute::Int<1>>;
  static constexpr bool kCooperative =
      std::is_same_v<Schedule, cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K, cute::GMMA::Major::K>(),
      cute::Layout<cute::Shape<cute::Int<kCooperative ? 2 : 1>, cute::Int<1>, cute::Int<1>>>{}));
  template <bool kShared>
  using Load = std::conditional_t<kShared, cute::SM90_TMA_LOAD_MULTICAST, cute::SM90_TMA_LOAD>;
  using Stride = cute::Stride<int64_t, cute::Int<1>, int64_t>;
  using SmemAtom = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using Mainloop = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<kStages, Cluster, Schedule>, Tile, Element, Stride,
      Element, Stride, Mma, Load<(kClusterColumns > 1)>, SmemAtom, void, cute::identity,
      Load<(kClusterRows > 1)>, SmemAtom, void, cute::identity>;
  using Epilogue = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<GateUpEpilogue<T>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                      GateUpTileScheduler>;
};

// Of FusedGateUpKernel. Shapes and alignment are the caller's business.
template <typename Fused>
void LaunchFused(CudaStream& stream, const MatrixView& x, const MatrixView& weight, const MatrixView& y,
                 int group_columns) {
  using Kernel = typename Fused::Kernel;
  using Element = typename Fused::Element;
  using Out = typename Fused::Epilogue::ElementD;
  constexpr auto kKernel = cutlass::device_kernel<Kernel>;
  constexpr int kSharedBytes = Kernel::SharedStorageSize;
  static_assert(kSharedBytes <= 227 * 1024);
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    return true;
  }));
  const int num_sms = stream.target().num_sms;
  typename Kernel::Arguments arguments = {};
  arguments.problem_shape =
      cute::make_shape(static_cast<int>(x.rows), static_cast<int>(weight.rows), static_cast<int>(x.cols), 1);
  arguments.mainloop = {static_cast<const Element*>(x.data),
                        {x.row_stride, {}, 0},
                        static_cast<const Element*>(weight.data),
                        {weight.row_stride, {}, 0}};
  arguments.epilogue = {static_cast<Out*>(y.data), y.row_stride};
  arguments.hw_info.sm_count = num_sms;
  arguments.scheduler.group_columns = group_columns;
  const typename Kernel::Params params = Kernel::to_underlying_arguments(arguments, /*workspace=*/nullptr);
  const dim3 cluster(cute::size<0>(typename Fused::Cluster{}), cute::size<1>(typename Fused::Cluster{}));
  LaunchClusters("fused gate-up product", kKernel, GateUpTileScheduler::Grid(params.scheduler, num_sms),
                 cluster, Kernel::get_block_shape(), kSharedBytes, stream, params);
}

// kernel: not kNone.
template <typename T>
void LaunchFusedKernel(CudaStream& stream, FusedGateUp kernel, const MatrixView& x, const MatrixView& weight,
                       const MatrixView& y, int group_columns) {
  using cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  // Clusters of 256x256 and 128x256: the smaller dimension of a tile is loaded by one block, the larger by
  // two. As many stages as shared memory holds.
  switch (kernel) {
    case FusedGateUp::kCooperative128x256:
      return LaunchFused<FusedGateUpKernel<T, KernelTmaWarpSpecializedCooperative, 128, 256, 2, 1, 4>>(
          stream, x, weight, y, group_columns);
    case FusedGateUp::kCooperative256x128:
      return LaunchFused<FusedGateUpKernel<T, KernelTmaWarpSpecializedCooperative, 256, 128, 1, 2, 4>>(
          stream, x, weight, y, group_columns);
    case FusedGateUp::kPingpong128x128:
      return LaunchFused<FusedGateUpKernel<T, KernelTmaWarpSpecializedPingpong, 128, 128, 1, 2, 7>>(
          stream, x, weight, y, group_columns);
    default:
      TANDEM_CHECK(false, "no fused gate-up product");
  }
}

}  // namespace tandem
