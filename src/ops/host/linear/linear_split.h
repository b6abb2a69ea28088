// How a product is divided among a pool's threads: row chunks x column ranges. Results do not depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/host/compute_pool.h"
#include "ops/host/linear/linear_kernels.h"
#include "ops/linear.h"

namespace tandem {

// A rectangle of y: rows [row, row + num_rows), columns [first_unit, end_unit) * kColumnsPerUnit.
struct LinearRange {
  int64_t row = 0;
  int64_t num_rows = 0;  // at most kMaxTileRows
  int64_t first_unit = 0;
  int64_t end_unit = 0;
};

struct LinearSplit {
  int64_t chunk_rows = 0;
  int64_t num_chunks = 0;
  int64_t num_ranges = 0;
  int64_t units_a_step = 1;  // range borders lie at multiples of this many units
};

// group_rows: rows that the kernel takes at a time.
LinearSplit SplitProduct(int64_t rows, int64_t num_units, int64_t weight_bytes, int num_threads,
                         int64_t group_rows);

// Calls body(const LinearRange&) for all rectangles of y [rows, out_features].
template <typename Body>
void ForEachLinearRange(ComputePool& pool, int64_t rows, int64_t out_features, int64_t weight_bytes,
                        int64_t group_rows, const Body& body) {
  const int64_t num_units = (out_features + kColumnsPerUnit - 1) / kColumnsPerUnit;
  const LinearSplit split = SplitProduct(rows, num_units, weight_bytes, pool.num_threads(), group_rows);
  const int64_t num_steps = (num_units + split.units_a_step - 1) / split.units_a_step;
  pool.ParallelFor(split.num_chunks * split.num_ranges, [&](int64_t task) {
    const int64_t range = task / split.num_chunks;
    LinearRange part;
    part.row = task % split.num_chunks * split.chunk_rows;
    part.num_rows = std::min(split.chunk_rows, rows - part.row);
    part.first_unit = range * num_steps / split.num_ranges * split.units_a_step;
    part.end_unit = std::min(num_units, (range + 1) * num_steps / split.num_ranges * split.units_a_step);
    body(part);
  });
}

// What the tiles of all kinds of weights have in common. Tile: LinearTile or QuantizedTile; Weight: the
// host's.
template <typename Tile, typename Weight>
Tile TileOf(const LinearArgs& args, const Weight& weight, const LinearRange& range) {
  Tile tile;
  tile.x = args.x.RowData(range.row);
  tile.x_stride = args.x.row_stride;
  tile.num_rows = range.num_rows;
  tile.panels = weight.panels();
  tile.first_unit = range.first_unit;
  tile.end_unit = range.end_unit;
  tile.bias = weight.bias();
  tile.y = args.y.RowData(range.row);
  tile.y_stride = args.y.row_stride;
  tile.out_features = weight.out_features();
  return tile;
}

// For the types of x and y. Kernels: LinearKernels or QuantizedKernels.
template <typename Kernels>
auto KernelFor(const LinearArgs& args, const Kernels& kernels) {
  if (args.x.dtype == DType::kF32) return kernels.f32;
  return args.y.dtype == DType::kF32 ? kernels.bf16_to_f32 : kernels.bf16_to_bf16;
}

}  // namespace tandem
