// Between the two parts of stream_linear.h: what the host decides and what the kernels need.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "device/cuda/cuda_stream.h"

namespace tandem {

constexpr int kStreamChunk = 64;          // elements of in_features that are copied at once
constexpr int kStreamWeightBoxRows = 128;
constexpr int kStreamMaxTeamCtas = 2;
constexpr int kStreamWarps = 8;  // that multiply, in a CTA
constexpr int kStreamMaxCtas = 256;

// How a product is cut. A team is one CTA, or a cluster of two that shares its loads of x. A tile has
// 128 * tile_boxes outputs for every CTA of the team.
struct StreamPlan {
  int columns = 0;     // rows of x, rounded up: 16, 32, 64, 96 or 128
  int tile_boxes = 1;  // 1: two CTAs fit an SM
  int team_ctas = 1;
  int num_teams = 0;
};

struct StreamArguments {
  const float* bias = nullptr;
  void* y = nullptr;
  float* partials = nullptr;
  int* counters = nullptr;
  int64_t y_stride = 0;
  int num_units = 0;  // (tile, chunk) pairs, in one line that the teams divide; times num_teams below 2^31
  int rows = 0;
  int out_features = 0;
  int chunks = 0;  // in a tile
  int num_teams = 0;
  int snap = 0;  // a cut this close to the end of a tile is moved there
  bool y_is_f32 = false;
  bool y_is_aligned = false;  // all rows to 16 bytes
};

// weight_map: boxes of kStreamWeightBoxRows rows; x_map: of columns / team_ctas rows.
void LaunchStreamBF16(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                      const CUtensorMap& x_map, const StreamArguments& arguments);
void LaunchStreamFP16(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                      const CUtensorMap& x_map, const StreamArguments& arguments);

}  // namespace tandem
