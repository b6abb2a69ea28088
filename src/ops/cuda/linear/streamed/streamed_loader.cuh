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

#include "ops/cuda/linear/streamed/work_cut.h"

namespace tandem {

// One thread: all loads of a block. Shape: a StreamedShape.
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
        empty_(empty) {
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
  // Hints for the L2.
  static constexpr auto kReadOnce = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
  static constexpr auto kReadOften = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

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
    cute::SM90_TMA_LOAD_2D::copy(&weight_, full_ + stage, kReadOnce,
                                 weight_stages_ + stage * Shape::kWeightBytes, place.step * Shape::kElements,
                                 Output(place));
  }
  // A block's share of x, for both blocks of a pair.
  __device__ void RequestX(int stage, const Place& place) const {
    constexpr int kShareBytes = Shape::kXBytes / Shape::kCluster;
    unsigned char* to = x_stages_ + stage * Shape::kXBytes + rank_ * kShareBytes;
    const int row = rank_ * (Shape::kRows / Shape::kCluster);
    if constexpr (Shape::kCluster == 1) {
      cute::SM90_TMA_LOAD_2D::copy(&x_, full_ + stage, kReadOften, to, place.step * Shape::kElements, row);
    } else {
      constexpr uint16_t kAllBlocks = (1U << Shape::kCluster) - 1;
      cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&x_, full_ + stage, kAllBlocks, kReadOften, to,
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
  Place begin_;
};

}  // namespace tandem
