// What a thread block of the streamed product loads, and when. For the units of this folder.
#pragma once

// The library's headers lean on those before them.
// clang-format off
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/arch/barrier.h>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
// clang-format on

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/linear/streamed/work_cut.h"

namespace tandem {

// Hints for the L2.
constexpr auto kStreamedReadOnce = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
constexpr auto kStreamedReadOften = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

// A weight that is a matrix, as a StreamedLoader sees it. output: the first of a block's tile.
template <typename Shape>
struct StreamedMatrix {
  const CUtensorMap& map;

  // Of a step, in shared memory.
  __device__ int Bytes(int output, int step) const { return Shape::kWeightBytes; }
  // Requests and prefetches: all lanes of a warp.
  __device__ void Request(int lane, unsigned char* to, uint64_t* full, int output, int step) const {
    if (lane != 0) return;
    cute::SM90_TMA_LOAD_2D::copy(&map, full, kStreamedReadOnce, to, step * Shape::kElements, output);
  }
  __device__ void Prefetch(int lane, int output, int step) const {
    if (lane != 0) return;
    cute::SM90_TMA_LOAD_2D::PREFETCH::copy(&map, step * Shape::kElements, output);
  }
};

// One warp: all loads of a block. Shape: a StreamedShape, or what has its names; Weight: as StreamedMatrix.
template <typename Shape, typename Weight>
class StreamedLoader {
 public:
  __device__ StreamedLoader(const Weight& weight, const CUtensorMap& x, const StreamedArguments& arguments,
                            int worker, int rank, int lane, unsigned char* weight_stages,
                            unsigned char* x_stages, uint64_t* full, uint64_t* empty)
      : weight_(weight),
        x_(x),
        num_steps_(arguments.cut.num_steps),
        num_output_tiles_(arguments.num_output_tiles),
        num_units_(arguments.cut.Begin(worker + 1) - arguments.cut.Begin(worker)),
        rank_(rank),
        lane_(lane),
        weight_stages_(weight_stages),
        x_stages_(x_stages),
        full_(full),
        empty_(empty) {
    const int begin = arguments.cut.Begin(worker);
    const int tile = begin / num_steps_;
    begin_ = {tile / num_output_tiles_, tile % num_output_tiles_, begin % num_steps_};
  }

  // What can be asked for while the predecessors run. The block's own barriers are ready.
  __device__ void RequestFirstWeights() {
    Place place = begin_;
    const int requested = min(num_units_, Shape::kStages);
    for (int i = 0; i < requested; ++i) {
      RequestWeight(i, place);
      Advance(&place);
    }
    for (int i = requested; i < min(num_units_, Shape::kStages + Shape::kPrefetchedSteps); ++i) {
      weight_.Prefetch(lane_, Output(place), place.step);
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
    int row_block;
    int output_tile;
    int step;
  };

  __device__ void Advance(Place* place) const {
    if (++place->step < num_steps_) return;
    place->step = 0;
    if (++place->output_tile < num_output_tiles_) return;
    place->output_tile = 0;
    ++place->row_block;
  }
  __device__ int Output(const Place& place) const {
    return (place.output_tile * Shape::kCluster + rank_) * Shape::kOutputs;
  }
  // The first request of a stage: says how much all of them bring, those of a pair's other block among them.
  __device__ void RequestWeight(int stage, const Place& place) const {
    const int output = Output(place);
    if (lane_ == 0) {
      cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(
          full_ + stage, static_cast<uint32_t>(weight_.Bytes(output, place.step) + Shape::kXBytes));
    }
    __syncwarp();
    weight_.Request(lane_, weight_stages_ + stage * Shape::kWeightBytes, full_ + stage, output, place.step);
  }
  // A block's share of x, for both blocks of a pair: a load for each kStreamedStepElements.
  __device__ void RequestX(int stage, const Place& place) const {
    if (lane_ != 0) return;
    constexpr int kLoads = Shape::kElements / kStreamedStepElements;
    constexpr int kLoadBytes = Shape::kXBytes / kLoads;
    const int row = place.row_block * Shape::kRows + rank_ * (Shape::kRows / Shape::kCluster);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      unsigned char* to =
          x_stages_ + stage * Shape::kXBytes + i * kLoadBytes + rank_ * (kLoadBytes / Shape::kCluster);
      const int element = place.step * Shape::kElements + i * kStreamedStepElements;
      if constexpr (Shape::kCluster == 1) {
        cute::SM90_TMA_LOAD_2D::copy(&x_, full_ + stage, kStreamedReadOften, to, element, row);
      } else {
        constexpr uint16_t kAllBlocks = (1U << Shape::kCluster) - 1;
        cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&x_, full_ + stage, kAllBlocks, kStreamedReadOften, to,
                                               element, row);
      }
    }
  }

  Weight weight_;
  const CUtensorMap& x_;
  int num_steps_;
  int num_output_tiles_;
  int num_units_;
  int rank_;
  int lane_;
  unsigned char* weight_stages_;
  unsigned char* x_stages_;
  uint64_t* full_;
  uint64_t* empty_;
  Place begin_;
};

}  // namespace tandem
