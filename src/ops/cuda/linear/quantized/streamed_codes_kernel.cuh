// The kernel of streamed_codes.h. Only for its units, compiled for 9.0a.
//
// As streamed/streamed_kernel.cuh, with a panel of records in the place of each group's matrix: a warp reads
// its record from shared memory, makes values of codes and scales in registers, and hands these to the tensor
// core. The values of a piece are made while the piece before is multiplied.
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
#include "base/round_up.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/fragments.cuh"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/streamed_codes.h"
#include "ops/cuda/linear/quantized/streamed_codes_shape.cuh"
#include "ops/cuda/linear/streamed/streamed_loader.cuh"
#include "ops/cuda/linear/streamed/streamed_results.cuh"

namespace tandem {

// A weight of codes, as a StreamedLoader sees it.
template <typename Shape>
struct StreamedRecords {
  const StreamedCodes& codes;

  __device__ int Slices(int step) const {
    return min(Shape::kSlices, codes.num_slices - step * Shape::kSlices);
  }
  __device__ int Panels(int output) const {
    return max(0, min(Shape::kGroups, codes.num_panels - output / kCodePanelOutputs));
  }
  __device__ int Bytes(int output, int step) const {
    return Panels(output) * Slices(step) * codes.slice_bytes;
  }
  // A lane for each panel.
  __device__ const std::byte* From(int lane, int output, int step) const {
    return codes.records + (output / kCodePanelOutputs + lane) * codes.panel_bytes +
           static_cast<int64_t>(step * Shape::kSlices) * codes.slice_bytes;
  }
  __device__ void Request(int lane, unsigned char* to, uint64_t* full, int output, int step) const {
    if (lane >= Panels(output)) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
        "[%3], %4;" ::"r"(cute::cast_smem_ptr_to_uint(to + lane * Shape::kPanelBytes)),
        "l"(From(lane, output, step)), "r"(static_cast<uint32_t>(Slices(step) * codes.slice_bytes)),
        "r"(cute::cast_smem_ptr_to_uint(full)), "l"(kStreamedReadOnce)
        : "memory");
  }
  __device__ void Prefetch(int lane, int output, int step) const {
    if (lane >= Panels(output)) return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(From(lane, output, step)),
                 "r"(static_cast<uint32_t>(Slices(step) * codes.slice_bytes))
                 : "memory");
  }
};

// What a lane makes values of: a piece's words, and the scales and minimums of its groups.
template <typename T, typename Shape>
struct CodesOfPiece {
  uint4 words[Shape::kPieceChunks];
  // In T, twice: of outputs r and r + 8.
  uint32_t scales[Shape::kPieceGroups][2];
  uint32_t minimums[Shape::kPieceGroups][2];

  static __device__ __forceinline__ uint32_t Twice(float value) { return PackPair<T>(value, value); }
  static __device__ __forceinline__ float2 TwoFloats(uint32_t two_halves) {
    return __half22float2(*reinterpret_cast<const __half2*>(&two_halves));
  }

  // record: the warp's, of the slice that the piece is (part part of). Not there: as codes that are all 0.
  __device__ __forceinline__ void LoadWords(const unsigned char* record, int part, bool is_there, int lane) {
#pragma unroll
    for (int chunk = 0; chunk < Shape::kPieceChunks; ++chunk) {
      words[chunk] = make_uint4(0, 0, 0, 0);
      if (is_there) {
        words[chunk] =
            *reinterpret_cast<const uint4*>(record + (part * Shape::kPieceChunks + chunk) * 512 + lane * 16);
      }
    }
  }

  // A slice of one group needs them once.
  __device__ __forceinline__ void LoadNumbers(const unsigned char* record, bool is_there, bool has_minimum,
                                              int lane) {
    constexpr CodeLayout kLayout = Shape::kLayout;
    constexpr float kMiddle = 1 << (kLayout.bits - 1);
    const int numbers = has_minimum ? 2 : 1;
#pragma unroll
    for (int g = 0; g < Shape::kPieceGroups; ++g) {
      const unsigned char* from =
          record + kLayout.code_bytes() + (lane / 4 * kLayout.groups_per_slice() + g) * numbers * 4;
      float2 scale = make_float2(0.0F, 0.0F);
      float2 minimum = make_float2(0.0F, 0.0F);
      if (is_there) {
        scale = TwoFloats(*reinterpret_cast<const uint32_t*>(from));
        if (has_minimum) {
          minimum = TwoFloats(*reinterpret_cast<const uint32_t*>(from + 4));
          minimum.x = fmaf(scale.x, kMiddle, minimum.x);
          minimum.y = fmaf(scale.y, kMiddle, minimum.y);
        }
      }
      scales[g][0] = Twice(scale.x);
      scales[g][1] = Twice(scale.y);
      minimums[g][0] = Twice(minimum.x);
      minimums[g][1] = Twice(minimum.y);
    }
  }

  // fragments: a0 to a3 of a step.
  __device__ __forceinline__ void Values(uint32_t (&fragments)[4], int step) const {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    if constexpr (Shape::kLayout.bits == 4) {
      const uint4& chunk = words[0];
      const uint32_t word = step == 0 ? chunk.x : step == 1 ? chunk.y : step == 2 ? chunk.z : chunk.w;
      ValuesOf4Bits<T, 8>(fragments, word);
    } else {
      const uint4& chunk = words[step / 2];
      if (step % 2 == 0) {
        CenteredValuesOf8Bits<T>(fragments, chunk.x, chunk.y);
      } else {
        CenteredValuesOf8Bits<T>(fragments, chunk.z, chunk.w);
      }
    }
    const int group = step * Shape::kPieceGroups / Shape::kPieceSteps;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair value = __hfma2(*reinterpret_cast<const Pair*>(&fragments[i]),
                                 *reinterpret_cast<const Pair*>(&scales[group][i % 2]),
                                 *reinterpret_cast<const Pair*>(&minimums[group][i % 2]));
      fragments[i] = *reinterpret_cast<const uint32_t*>(&value);
    }
  }
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    StreamedCodesKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ StreamedCodes codes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Barrier = cutlass::arch::ClusterBarrier;
  using Element = typename Shape::Element;
  extern __shared__ unsigned char shared[];
  unsigned char* x_stages =
      shared +
      (Shape::kAlignment - cute::cast_smem_ptr_to_uint(shared) % Shape::kAlignment) % Shape::kAlignment;
  unsigned char* weight_stages = x_stages + Shape::kStages * Shape::kXBytes;
  auto* full = reinterpret_cast<uint64_t*>(weight_stages + Shape::kStages * Shape::kWeightBytes);
  uint64_t* empty = full + Shape::kStages;
  int* flags = reinterpret_cast<int*>(empty + Shape::kStages);

  AllowSuccessors();
  const StreamedArguments& arguments = codes.product;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const int worker = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const int rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
  const WorkCut& cut = arguments.cut;
  const bool loads = warp == Shape::kMultiplyWarps;

  if (loads && lane == 0) {
    cute::prefetch_tma_descriptor(&x);
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      Barrier::init(full + stage, 1);
      Barrier::init(empty + stage, Shape::kMultiplyWarps * Shape::kCluster);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::fence_barrier_init();
  }
  StreamedLoader<Shape, StreamedRecords<Shape>> loader({codes}, x, arguments, worker, rank, lane,
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
  if (group == Shape::kGroups) {
    cutlass::arch::warpgroup_reg_dealloc<Shape::kLoadRegisters>();
    if (loads) loader.RequestRest();
    return;
  }

  cutlass::arch::warpgroup_reg_alloc<Shape::kMultiplyRegisters>();
  typename Shape::Mma mma;
  const auto slice = mma.get_slice(0);
  const auto x_tiles = slice.make_fragment_B(slice.partition_B(cute::make_tensor(
      cute::make_smem_ptr(reinterpret_cast<Element*>(x_stages)), typename Shape::XLayout{})));
  auto values = cute::make_tensor<Element>(typename Shape::Values{});
  auto fragments = cute::recast<uint32_t>(values);
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

  const int record_bytes = codes.slice_bytes / kPanelRecords;
  const unsigned char* own_records = weight_stages + group * Shape::kPanelBytes + warp % 4 * record_bytes;
  const int end = cut.Begin(worker + 1);
  int stage = 0;
  uint32_t phase = 0;
  for (int unit = cut.Begin(worker); unit < end;) {
    const int tile = unit / cut.num_steps;
    const int first_step = unit - tile * cut.num_steps;
    const int num_steps = min(end, (tile + 1) * cut.num_steps) - unit;
    int used_stage = 0;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    cute::warpgroup_fence_operand(sums);
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
      Barrier::wait(full + stage, phase);
      CodesOfPiece<T, Shape> piece_codes;
#pragma unroll
      for (int piece = 0; piece < Shape::kPieces; ++piece) {
        const int slice_of_step = piece * Shape::kSlices / Shape::kPieces;
        const unsigned char* record =
            own_records + stage * Shape::kWeightBytes + slice_of_step * codes.slice_bytes;
        const bool is_there = (first_step + i) * Shape::kSlices + slice_of_step < codes.num_slices;
        piece_codes.LoadWords(record, Shape::kSlices == 1 ? piece : 0, is_there, lane);
        if (piece == 0 || Shape::kSlices > 1) {
          piece_codes.LoadNumbers(record, is_there, codes.has_minimum, lane);
        }
#pragma unroll
        for (int step = 0; step < Shape::kPieceSteps; ++step) {
          uint32_t made[4];
          piece_codes.Values(made, step);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            fragments(j + 4 * (step + Shape::kPieceSteps * piece)) = made[j];
          }
        }
        cute::warpgroup_arrive();
#pragma unroll
        for (int step = 0; step < Shape::kPieceSteps; ++step) {
          cute::gemm(mma, values(cute::_, cute::_, step, piece),
                     x_tiles(cute::_, cute::_, step, stage * Shape::kPieces + piece), sums);
          mma.accumulate_ = cute::GMMA::ScaleOut::One;
        }
        cute::warpgroup_commit_batch();
        // The piece before is multiplied: its values may go.
        cute::warpgroup_wait<1>();
        if (piece == 0 && i > 0) release(used_stage);
      }
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

    const int row_block = tile / arguments.num_output_tiles;
    const int first_row = row_block * Shape::kRows;
    const int blocks_of_rows = min(Shape::kBlocks, (arguments.rows - first_row + 7) / 8);
    const WorkCut::Parts parts = cut.PartsOf(tile);
    const bool complete = parts.count == 1 || JoinParts<Shape>(arguments.workspace, parts, worker, rank,
                                                               group, thread % kStreamedGroupThreads,
                                                               blocks_of_rows, flags + group, sums);
    if (complete) {
      const int output_tile = tile - row_block * arguments.num_output_tiles;
      const int first_output = (output_tile * Shape::kCluster + rank) * Shape::kOutputs +
                               group * kCodePanelOutputs + warp % 4 * kRecordOutputs;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = first_output + half * 8 + lane / 4;
        const float factor = output < arguments.out_features ? codes.factors[output] : 0.0F;
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) {
          sums(4 * block + 2 * half) *= factor;
          sums(4 * block + 2 * half + 1) *= factor;
        }
      }
      WriteResults<T, Shape>(arguments, first_row, first_output, lane, sums);
    }
  }
#else
  __trap();
#endif
}

template <typename T, typename Shape>
void LaunchStreamedCodesShape(CudaStream& stream, const MatrixView& x, StreamedCodes codes) {
  constexpr auto kFunction = StreamedCodesKernel<T, Shape>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
    return true;
  }));
  constexpr int kTileOutputs = Shape::kOutputs * Shape::kCluster;
  const int num_output_tiles = (codes.product.out_features + kTileOutputs - 1) / kTileOutputs;
  const int num_row_blocks = (codes.product.rows + Shape::kRows - 1) / Shape::kRows;
  const int num_steps = (codes.num_slices + Shape::kSlices - 1) / Shape::kSlices;
  codes.product.num_output_tiles = num_output_tiles;
  codes.product.cut =
      WorkCut::Of(num_output_tiles * num_row_blocks, num_steps, stream.target().num_sms / Shape::kCluster);
  const auto num_blocks = static_cast<unsigned>(codes.product.cut.num_workers * Shape::kCluster);
  LaunchClusters("streamed codes", kFunction, dim3(num_blocks), dim3(Shape::kCluster), dim3(Shape::kThreads),
                 Shape::kSharedBytes, stream, StreamedMapOf(x, Shape::kRows / Shape::kCluster), codes);
}

// The kernel for a number of rows: groups of warps, and blocks that share x, as they were fastest for
// Llama-3.1-8B on an H200.
template <typename T, int kBits, int kGroupSize>
void LaunchStreamedCodesRows(CudaStream& stream, const MatrixView& x, const StreamedCodes& codes) {
  const auto launch = [&]<int kRows, int kGroups, int kCluster>() {
    using Shape = StreamedCodesShape<T, kBits, kGroupSize, kRows, kGroups, kCluster>;
    LaunchStreamedCodesShape<T, Shape>(stream, x, codes);
  };
  if (x.rows <= 32) return launch.template operator()<32, 3, 1>();
  if (x.rows <= 64) return launch.template operator()<64, 3, 1>();
  if (x.rows <= 96) return launch.template operator()<96, 2, 2>();
  // More rows are cut into blocks: as small ones as weights with few outputs need, whose sums would be in
  // many parts; else those that leave the fewest places empty.
  const bool has_few_tiles = codes.product.out_features < 256 * (stream.target().num_sms / 2);
  if (x.rows <= 128 || (has_few_tiles && x.rows > 192)) return launch.template operator()<128, 2, 2>();
  const auto padded = [&](int64_t block) { return DivideUp(x.rows, block) * block; };
  if (padded(192) < padded(256)) return launch.template operator()<192, 2, 2>();
  launch.template operator()<256, 2, 2>();
}

// kGroupSizes: that MakeCodeLayout gives to codes of kBits.
template <typename T, int kBits, int... kGroupSizes>
void LaunchStreamedCodesGroups(CudaStream& stream, int group_size, const MatrixView& x,
                               const StreamedCodes& codes) {
  const bool launched = ((group_size == kGroupSizes &&
                          (LaunchStreamedCodesRows<T, kBits, kGroupSizes>(stream, x, codes), true)) ||
                         ...);
  TANDEM_CHECK(launched, "codes of {} bits in groups of {}", kBits, group_size);
}

}  // namespace tandem
