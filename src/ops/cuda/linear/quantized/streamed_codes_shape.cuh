// The shape of a kernel of streamed_codes.h and of its shared memory. For its units.
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

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/linear/streamed/streamed_shape.cuh"
#include "ops/cuda/row_access.h"

namespace tandem {

// T: Bf16 or Fp16. A group of four warps multiplies a panel of 64 outputs; kRows_: of x, at most; kCluster_:
// blocks that share x.
template <typename T, int kBits, int kGroupSize, int kRows_, int kGroups_, int kCluster_>
struct StreamedCodesShape {
  static constexpr int kRows = kRows_;
  static constexpr int kGroups = kGroups_;
  static constexpr int kCluster = kCluster_;
  static constexpr int kOutputs = kGroups * kCodePanelOutputs;
  static constexpr int kMultiplyWarps = kGroups * 4;
  // The last group loads. Of its warps one works: registers are handed out by groups, and it leaves them most
  // of its own.
  static constexpr int kThreads = (kGroups + 1) * 128;
  static_assert(kGroups == 2 || kGroups == 3);
  static constexpr uint32_t kLoadRegisters = 40;
  static constexpr uint32_t kMultiplyRegisters = kGroups == 2 ? 232 : 152;

  // A step is two pieces, each of kStreamedStepElements of in_features: two slices, or the halves of one.
  static constexpr int kPieces = 2;
  static constexpr int kElements = kPieces * kStreamedStepElements;
  static constexpr CodeLayout kLayout = {kBits, kGroupSize, true, 0};
  static constexpr int kSlices = kElements / kLayout.slice_size();  // of a step
  static constexpr int kPieceSteps = kStreamedStepElements / 16;    // of the tensor core
  static constexpr int kPieceGroups = std::max(1, kStreamedStepElements / kGroupSize);
  static constexpr int kPieceChunks = kStreamedStepElements * kRecordOutputs * kBits / 8 / 512;

  static constexpr int kPanelBytes = kSlices * kPanelRecords * kLayout.record_bytes();  // of a step, at most
  static constexpr int kWeightBytes = kGroups * kPanelBytes;
  static constexpr int kXBytes = kRows * kElements * static_cast<int>(sizeof(T));
  using Ring = StreamedRing<kGroups, kWeightBytes, kXBytes>;
  static constexpr int kAlignment = Ring::kAlignment;
  static constexpr int kStages = Ring::kStages;
  static constexpr int kSharedBytes = Ring::kSharedBytes;
  static constexpr int kPrefetchedSteps = Ring::kPrefetchedSteps;
  static constexpr int kBlocks = kRows / 8;
  static constexpr int kSums = kBlocks * 4;

  using Element = std::conditional_t<std::is_same_v<T, Bf16>, cutlass::bfloat16_t, cutlass::half_t>;
  using Tile = cute::Shape<cute::Int<kCodePanelOutputs>, cute::Int<kRows>, cute::Int<kStreamedStepElements>>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K,
                                 cute::GMMA::Major::K>()));
  // As TMA writes them with a swizzle of 128 bytes: rows of 128 bytes, pieces one after the other.
  using SmemAtom = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using XLayout = decltype(cute::tile_to_shape(
      SmemAtom{},
      cute::Shape<cute::Int<kRows>, cute::Int<kStreamedStepElements>, cute::Int<kPieces * kStages>>{}));
  // What a thread has of the tensor core's first operand, for all steps of all pieces.
  using Values = cute::Shape<cute::Shape<cute::_2, cute::_2, cute::_2>, cute::_1, cute::Int<kPieceSteps>,
                             cute::Int<kPieces>>;
};

}  // namespace tandem
