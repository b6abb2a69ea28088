// The shape of a kernel of the streamed product and of its shared memory. For the units of this folder.
#pragma once

// The library's headers lean on those before them.
// clang-format off
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cute/arch/mma_sm90.hpp>
#include <cute/atom/mma_atom.hpp>
// clang-format on

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/row_access.h"

namespace tandem {

constexpr int kStreamedGroupThreads = 128;
constexpr int kStreamedMultiplyWarps = kStreamedGroups * 4;
// The last group loads. Of its warps one works: registers are handed out by groups, and it leaves them most
// of its own.
constexpr int kStreamedThreads = (kStreamedGroups + 1) * kStreamedGroupThreads;
constexpr uint32_t kStreamedLoadRegisters = 40;
constexpr uint32_t kStreamedMultiplyRegisters = 232;

// Stages in shared memory, each of a step's weight and x, and barriers behind them.
template <int kGroups, int kWeightBytes, int kXBytes>
struct StreamedRing {
  static constexpr int kAlignment = 1024;  // of swizzled matrices
  static constexpr int kMaxSharedBytes = 227 << 10;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kStages =
      std::min(9, (kMaxSharedBytes - kAlignment - kBarrierBytes) / (kWeightBytes + kXBytes));
  static constexpr int kSharedBytes = kAlignment + kStages * (kWeightBytes + kXBytes) + kBarrierBytes;
  static_assert(kStages >= 2 && 2 * kStages * 8 + kGroups * 4 <= kBarrierBytes);
  // Of the weight, that are brought to the L2 while the predecessors run, beside the stages.
  static constexpr int kPrefetchedSteps = std::max(0, 12 - kStages);
};

// T: Bf16 or Fp16.
template <typename T, StreamedLinear kKernel>
struct StreamedShape {
  static constexpr int kGroups = kStreamedGroups;
  static constexpr int kRows = StreamedTraitsOf(kKernel).max_rows;
  static constexpr int kCluster = StreamedTraitsOf(kKernel).cluster;
  static constexpr int kOutputs = kStreamedTileOutputs;
  static constexpr int kElements = kStreamedStepElements;
  static constexpr int kWeightBytes = kOutputs * kElements * static_cast<int>(sizeof(T));  // of a stage
  static constexpr int kXBytes = kRows * kElements * static_cast<int>(sizeof(T));
  using Ring = StreamedRing<kGroups, kWeightBytes, kXBytes>;
  static constexpr int kAlignment = Ring::kAlignment;
  static constexpr int kStages = Ring::kStages;
  static constexpr int kSharedBytes = Ring::kSharedBytes;
  static constexpr int kPrefetchedSteps = Ring::kPrefetchedSteps;
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

}  // namespace tandem
