// What the units of the streamed product hand to each other.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/streamed/streamed_linear.h"
#include "ops/cuda/linear/streamed/work_cut.h"

namespace tandem {

// Rows of the weight that a thread block multiplies at a time.
constexpr int kStreamedTileOutputs = 128;
// Of in_features, in a step: 128 bytes, as wide as shared memory is swizzled.
constexpr int kStreamedStepElements = 64;

// Of four warps: each multiplies half of a tile's outputs and adds its parts of tiles for itself.
constexpr int kStreamedGroups = 2;

struct StreamedTraits {
  std::string_view name;
  int max_rows;
  int cluster;  // thread blocks that share x
};
// In the order of StreamedLinear.
inline constexpr std::array kStreamedTraits = {
    StreamedTraits{"none", 0, 1},        StreamedTraits{"64", 64, 1},
    StreamedTraits{"64-pairs", 64, 2},   StreamedTraits{"128", 128, 1},
    StreamedTraits{"128-pairs", 128, 2}, StreamedTraits{"192-pairs", 192, 2},
    StreamedTraits{"256-pairs", 256, 2}};
static_assert(kStreamedTraits.size() == kStreamedLinears.size() + 1);
constexpr const StreamedTraits& StreamedTraitsOf(StreamedLinear kernel) {
  return kStreamedTraits.at(static_cast<size_t>(kernel));
}

struct StreamedArguments {
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  int rows = 0;
  int out_features = 0;
  bool y_is_f32 = false;
  bool is_gate_up = false;  // y: [rows, out_features / 2], not fp32
  // Its tiles are those of a pair, if the kernel works in pairs: all of a block of rows, then of the next.
  WorkCut cut;
  int num_output_tiles = 0;  // of a block of rows
  StreamedWorkspace workspace;
};

// Rows and columns of what one load brings are those of the kernel.
struct StreamedMaps {
  CUtensorMap weight;
  CUtensorMap x;
};

// Loads of box_rows rows and kStreamedStepElements columns of a matrix of bf16 or fp16, swizzled by 128
// bytes. What lies outside of the matrix is 0.
CUtensorMap StreamedMapOf(const MatrixView& matrix, int box_rows);

// The kernels for one type, in a unit each. kernel: not kNone.
void LaunchStreamedBf16(CudaStream& stream, StreamedLinear kernel, const StreamedMaps& maps,
                        const StreamedArguments& arguments);
void LaunchStreamedFp16(CudaStream& stream, StreamedLinear kernel, const StreamedMaps& maps,
                        const StreamedArguments& arguments);

}  // namespace tandem
