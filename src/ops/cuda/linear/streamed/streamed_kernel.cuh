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
#include <cutlass/numeric_types.h>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/mma_sm90.hpp>
#include <cute/atom/mma_atom.hpp>
// clang-format on

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/row_access.h"

namespace tandem {

constexpr int kStreamedGroupThreads = 128;
constexpr int kStreamedMultiplyWarps = kStreamedGroups * 4;
// The last group loads. Of its warps one works: registers are handed out by groups, and it leaves them most of its own.
constexpr int kStreamedThreads = (kStreamedGroups + 1) * kStreamedGroupThreads;
constexpr uint32_t kStreamedLoadRegisters = 40;
constexpr uint32_t kStreamedMultiplyRegisters = 232;

// T: Bf16 or Fp16. The shape of a kernel and of its shared memory.
template <typename T, StreamedLinear kKernel>
struct StreamedShape {
  static constexpr int kRows = StreamedTraitsOf(kKernel).max_rows;
  static constexpr int kCluster = StreamedTraitsOf(kKernel).cluster;
  static constexpr int kOutputs = kStreamedTileOutputs;
  static constexpr int kElements = kStreamedStepElements;
  static constexpr int kWeightBytes = kOutputs * kElements * static_cast<int>(sizeof(T));  // of a stage
  static constexpr int kXBytes = kRows * kElements * static_cast<int>(sizeof(T));
  static constexpr int kAlignment = 1024;  // of swizzled matrices
  static constexpr int kMaxSharedBytes = 227 << 10;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kStages =
      std::min(9, (kMaxSharedBytes - kAlignment - kBarrierBytes) / (kWeightBytes + kXBytes));
  static constexpr int kSharedBytes = kAlignment + kStages * (kWeightBytes + kXBytes) + kBarrierBytes;
  static_assert(2 * kStages * 8 + kStreamedGroups * 4 <= kBarrierBytes);
  // Of the weight, that are brought to the L2 while the predecessors run, beside the stages.
  static constexpr int kPrefetchedSteps = std::max(0, 12 - kStages);
  // The tensor core's result in blocks of 8 rows of x: a thread has 2 of them for each of 2 outputs.
  static constexpr int kBlocks = kRows / 8;
  static constexpr int kSums = kBlocks * 4;

  using Element = std::conditional_t<std::is_same_v<T, Bf16>, cutlass::bfloat16_t, cutlass::half_t>;
  using Tile = cute::Shape<cute::Int<kOutputs>, cute::Int<kRows>, cute::Int<kElements>>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K, cute::GMMA::Major::K>(),
      cute::Layout<cute::Shape<cute::Int<kStreamedGroups>, cute::Int<1>, cute::Int<1>>>{}));
  // As TMA writes them with a swizzle of 128 bytes: rows of 128 bytes, stages one after the other.
  using SmemAtom = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using WeightLayout = decltype(cute::tile_to_shape(
      SmemAtom{}, cute::Shape<cute::Int<kOutputs>, cute::Int<kElements>, cute::Int<kStages>>{}));
  using XLayout = decltype(cute::tile_to_shape(
      SmemAtom{}, cute::Shape<cute::Int<kRows>, cute::Int<kElements>, cute::Int<kStages>>{}));
};

// Waits for the group's other warps.
__device__ __forceinline__ void SyncStreamedGroup(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kStreamedGroupThreads) : "memory");
}

__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What was counted before. What the caller has seen others write is visible to who counts later.
__device__ __forceinline__ uint32_t CountArrival(uint32_t* arrivals) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
  return before;
}

template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// Of an 8x8 matrix of 16-bit elements, two neighbours of row lane / 4 a thread: the same of its transpose.
__device__ __forceinline__ uint32_t TransposeBlock(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t EvictLastPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// One thread: all loads of a block.
template <typename Shape>
class StreamedLoader {
 public:
  __device__ StreamedLoader(const CUtensorMap& weight, const CUtensorMap& x, const WorkCut& cut, int worker,
                            int rank, unsigned char* weight_stages, unsigned char* x_stages, uint64_t* full,
                            uint64_t* empty)
      : weight_(weight),
        x_(x),
        num_steps_(cut.num_steps),
        num_units_(cut.Begin(worker + 1) - cut.Begin(worker)),
        rank_(rank),
        weight_stages_(weight_stages),
        x_stages_(x_stages),
        full_(full),
        empty_(empty),
        weight_policy_(EvictFirstPolicy()),
        x_policy_(EvictLastPolicy()) {
    const int begin = cut.Begin(worker);
    begin_ = {begin / num_steps_, begin % num_steps_};
  }

  // What can be asked for while the predecessors run. The block's own barriers are ready.
  __device__ void RequestFirstWeights() {
    Place place = begin_;
    const int requested = min(num_units_, Shape::kStages);
    for (int i = 0; i < requested; ++i) {
      Expect(i);
      RequestWeight(i, place);
      Advance(&place);
    }
    for (int i = requested; i < min(num_units_, Shape::kStages + Shape::kPrefetchedSteps); ++i) {
      cute::SM90_TMA_LOAD_2D::PREFETCH::copy(&weight_, place.step * Shape::kElements, Output(place));
      Advance(&place);
    }
  }

  // The rest. The predecessors have ended, and all barriers of a pair are ready. When it returns the other
  // block of a pair is done with this one's shared memory.
  __device__ void RequestRest() {
    Place place = begin_;
    const int requested = min(num_units_, Shape::kStages);
    for (int i = 0; i < requested; ++i) {
      RequestX(i, place);
      Advance(&place);
    }
    int stage = 0;
    uint32_t phase = 0;
    const auto await_stage = [&] { cutlass::arch::ClusterBarrier::wait(empty_ + stage, phase); };
    const auto go_on = [&] {
      if (++stage == Shape::kStages) {
        stage = 0;
        phase ^= 1;
      }
    };
    for (int i = requested; i < num_units_; ++i) {
      await_stage();
      Expect(stage);
      RequestWeight(stage, place);
      RequestX(stage, place);
      Advance(&place);
      go_on();
    }
    if constexpr (Shape::kCluster > 1) {
      for (int i = 0; i < requested; ++i) {
        await_stage();
        go_on();
      }
    }
  }

 private:
  struct Place {
    int tile;
    int step;
  };

  __device__ void Advance(Place* place) const {
    if (++place->step == num_steps_) {
      place->step = 0;
      ++place->tile;
    }
  }
  __device__ int Output(const Place& place) const {
    return (place.tile * Shape::kCluster + rank_) * Shape::kOutputs;
  }
  // All that a stage gets, also from the other block of a pair.
  __device__ void Expect(int stage) const {
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(full_ + stage,
                                                                   Shape::kWeightBytes + Shape::kXBytes);
  }
  __device__ void RequestWeight(int stage, const Place& place) const {
    cute::SM90_TMA_LOAD_2D::copy(&weight_, full_ + stage, weight_policy_,
                                 weight_stages_ + stage * Shape::kWeightBytes, place.step * Shape::kElements,
                                 Output(place));
  }
  // A block's share of x, for both blocks of a pair.
  __device__ void RequestX(int stage, const Place& place) const {
    constexpr int kShareBytes = Shape::kXBytes / Shape::kCluster;
    unsigned char* to = x_stages_ + stage * Shape::kXBytes + rank_ * kShareBytes;
    const int row = rank_ * (Shape::kRows / Shape::kCluster);
    if constexpr (Shape::kCluster == 1) {
      cute::SM90_TMA_LOAD_2D::copy(&x_, full_ + stage, x_policy_, to, place.step * Shape::kElements, row);
    } else {
      constexpr uint16_t kAllBlocks = (1U << Shape::kCluster) - 1;
      cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&x_, full_ + stage, kAllBlocks, x_policy_, to,
                                             place.step * Shape::kElements, row);
    }
  }

  const CUtensorMap& weight_;
  const CUtensorMap& x_;
  int num_steps_;
  int num_units_;
  int rank_;
  unsigned char* weight_stages_;
  unsigned char* x_stages_;
  uint64_t* full_;
  uint64_t* empty_;
  uint64_t weight_policy_;
  uint64_t x_policy_;
  Place begin_;
};

// For a group of warps: adds the sums of the tile's other parts if all are there, else leaves these in memory.
// True: sums are the tile's. In memory a thread's sums lie in a float4 for each block of 8 rows of x, of which
// num_blocks are needed. flag: in shared memory, of the group.
template <typename Shape, typename Sums>
__device__ __forceinline__ bool JoinParts(const StreamedWorkspace& workspace, const WorkCut::Parts& parts,
                                          int worker, int rank, int group, int thread, int num_blocks,
                                          int* flag, Sums& sums) {
  // A worker's place is one of each of its blocks.
  const auto place_of = [&](int of_worker) {
    const int place = WorkCut::PlaceOf(parts, of_worker) * Shape::kCluster + rank;
    return static_cast<float4*>(workspace.partial_sums) +
           static_cast<int64_t>(place * kStreamedGroups + group) * (Shape::kBlocks * kStreamedGroupThreads) +
           thread;
  };
  uint32_t* arrivals =
      workspace.arrivals + (parts.first_worker * Shape::kCluster + rank) * kStreamedGroups + group;
  const auto others = static_cast<uint32_t>(parts.count - 1);

  SyncStreamedGroup(group);  // all have read the flag of the part before
  if (thread == 0) *flag = LoadAcquire(arrivals) == others;
  SyncStreamedGroup(group);
  bool is_last = *flag != 0;
  if (!is_last) {
    float4* to = place_of(worker);
#pragma unroll
    for (int i = 0; i < Shape::kBlocks; ++i) {
      if (i < num_blocks) {
        __stcg(to + i * kStreamedGroupThreads,
               make_float4(sums(4 * i), sums(4 * i + 1), sums(4 * i + 2), sums(4 * i + 3)));
      }
    }
    SyncStreamedGroup(group);
    if (thread == 0) *flag = CountArrival(arrivals) == others;
    SyncStreamedGroup(group);
    is_last = *flag != 0;
  }
  if (!is_last) return false;
  if (thread == 0) *arrivals = 0;  // for the next product

  // Enough loads at a time to hide what one takes, within the registers.
  constexpr int kBatch = std::min(Shape::kBlocks, Shape::kBlocks > 16 ? 8 : 16);
  const int before = worker - parts.first_worker;
#pragma unroll
  for (int first = 0; first < Shape::kBlocks; first += kBatch) {
    if (first >= num_blocks) break;
    float4 loaded[kBatch];
    const auto load = [&](int part) {
      const float4* from = place_of(parts.first_worker + part);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i < num_blocks) loaded[i] = __ldcg(from + (first + i) * kStreamedGroupThreads);
      }
    };
    if (before > 0) {
      float4 sum[kBatch];
      load(0);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) sum[i] = loaded[i];
#pragma unroll 1
      for (int part = 1; part < before; ++part) {
        load(part);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          sum[i].x += loaded[i].x;
          sum[i].y += loaded[i].y;
          sum[i].z += loaded[i].z;
          sum[i].w += loaded[i].w;
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = 4 * (first + i);
        sums(at) = sum[i].x + sums(at);
        sums(at + 1) = sum[i].y + sums(at + 1);
        sums(at + 2) = sum[i].z + sums(at + 2);
        sums(at + 3) = sum[i].w + sums(at + 3);
      }
    }
#pragma unroll 1
    for (int part = before + 1; part < parts.count; ++part) {
      load(part);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = 4 * (first + i);
        sums(at) += loaded[i].x;
        sums(at + 1) += loaded[i].y;
        sums(at + 2) += loaded[i].z;
        sums(at + 3) += loaded[i].w;
      }
    }
  }
  return true;
}

// Adds the bias and writes the results. first_output: of the warp's 16.
template <typename T, typename Shape, typename Sums>
__device__ __forceinline__ void WriteResults(const StreamedArguments& arguments, int first_output, int lane,
                                             const Sums& sums) {
  const int octet = lane / 4;
  const int q = lane % 4;
  float bias[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = first_output + half * 8 + octet;
    if (arguments.bias != nullptr && output < arguments.out_features) bias[half] = arguments.bias[output];
  }
  if (arguments.y_is_f32) {
    auto* y = static_cast<float*>(arguments.y);
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) {
      const int row = i / 4 * 8 + q * 2 + i % 2;
      const int half = i % 4 / 2;
      const int output = first_output + half * 8 + octet;
      if (row < arguments.rows && output < arguments.out_features) {
        y[row * arguments.y_stride + output] = sums(i) + bias[half];
      }
    }
    return;
  }
  auto* y = static_cast<T*>(arguments.y);
  // Four blocks of 8 rows at a time: transposed, a thread has 8 outputs in sequence of one row.
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; block += 4) {
    if (block * 8 >= arguments.rows) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (block + i) + 2 * half;
        words[i] = TransposeBlock(PackPair<T>(sums(at) + bias[half], sums(at + 1) + bias[half]));
      }
      TransposeInQuad(words, q);
      const int row = (block + q) * 8 + octet;
      const int output = first_output + half * 8;
      if (row < arguments.rows && output < arguments.out_features) {
        *reinterpret_cast<uint4*>(y + row * arguments.y_stride + output) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

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
      shared + (Shape::kAlignment - cute::cast_smem_ptr_to_uint(shared) % Shape::kAlignment) %
                   Shape::kAlignment;
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
  const bool loads = warp == kStreamedMultiplyWarps && lane == 0;

  if (loads) {
    cute::prefetch_tma_descriptor(&weight);
    cute::prefetch_tma_descriptor(&x);
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      Barrier::init(full + stage, 1);
      Barrier::init(empty + stage, kStreamedMultiplyWarps * Shape::kCluster);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::fence_barrier_init();
  }
  StreamedLoader<Shape> loader(weight, x, cut, worker, rank, weight_stages, x_stages, full, empty);
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
    const bool complete =
        parts.count == 1 || JoinParts<Shape>(arguments.workspace, parts, worker, rank, group,
                                             thread % kStreamedGroupThreads, blocks_of_rows, flags + group,
                                             sums);
    if (complete) {
      const int first_output =
          (tile * Shape::kCluster + rank) * Shape::kOutputs + group * (Shape::kOutputs / kStreamedGroups) +
          warp % 4 * 16;
      WriteResults<T, Shape>(arguments, first_output, lane, sums);
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
  static const bool prepared = [] {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           Shape::kSharedBytes));
    return true;
  }();
  TANDEM_CHECK(prepared);
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
