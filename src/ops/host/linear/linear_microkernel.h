// The matrix product kernel, compiled once an instruction set (see simd.h).
#pragma once

#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/row_groups.h"
#include "simd/fetch_level.h"
#include "simd/multiply_add.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int kVectorsPerPanel = static_cast<int>(kPanelColumns) / kLanes;
// One row reads a weight for every multiply-add: wide enough to keep many reads in flight.
constexpr int kSingleRowVectors = kVectorsPerPanel < 8 ? kVectorsPerPanel : 8;
// Weights of this many k stay in the L2 cache while all groups of a tile use them.
template <typename T>
constexpr int64_t kDepthBlock = 4096 / static_cast<int64_t>(sizeof(T));

// Cache lines to fetch ahead during a pass over a panel.
struct Prefetch {
  const char* next = nullptr;
  int64_t bytes_per_4_steps = 0;
  FetchLevel level = FetchLevel::kL2;
};

template <FetchLevel kLevel>
TANDEM_SIMD_INLINE void FetchBytes(const char* from, int64_t size_bytes) {
  for (const char* end = from + size_bytes; from < end; from += 64) FetchLine<kLevel>(from);
}

// Those of 4 steps.
TANDEM_SIMD_INLINE void FetchNext(Prefetch* prefetch) {
  const int64_t size_bytes = prefetch->bytes_per_4_steps;
  switch (prefetch->level) {
    case FetchLevel::kL1:
      FetchBytes<FetchLevel::kL1>(prefetch->next, size_bytes);
      break;
    case FetchLevel::kL2:
      FetchBytes<FetchLevel::kL2>(prefetch->next, size_bytes);
      break;
    case FetchLevel::kNonTemporal:
      FetchBytes<FetchLevel::kNonTemporal>(prefetch->next, size_bytes);
      break;
  }
  prefetch->next += size_bytes;
}

// Adds the products of k = [0, depth) to acc. x and w: at k = 0 of this call.
template <typename T, int kRows, int kVectors>
TANDEM_SIMD_INLINE void MultiplyAdd(Accumulators<kRows, kVectors>& acc, const T* x, int64_t x_stride,
                                    const T* w, int64_t depth, Prefetch prefetch) {
  constexpr int64_t kStepDepth = sizeof(T) == 2 ? 2 : 1;
  constexpr int64_t kStepWeights = kPanelColumns * kStepDepth;
  int64_t k = 0;
  for (; k + 4 * kStepDepth <= depth; k += 4 * kStepDepth) {
    FetchNext(&prefetch);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      Step(acc, x + k + i * kStepDepth, x_stride, w + i * kStepWeights);
    }
    w += 4 * kStepWeights;
  }
  for (; k + kStepDepth <= depth; k += kStepDepth) {
    Step(acc, x + k, x_stride, w);
    w += kStepWeights;
  }
  if constexpr (kStepDepth == 2) {
    if (k < depth) {  // an odd last k: nothing may be read past the row of x
      uint32_t pairs[kRows];
      for (int r = 0; r < kRows; ++r) pairs[r] = x[r * x_stride + k];
      StepPair(acc, pairs, w);
    }
  }
}

struct DepthRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool first = true;
  bool last = true;
};

// A block of W: what RunLinearTile hands to the groups of rows that share it.
struct PanelBlock {
  int64_t panel = 0;
  int64_t first_column = 0;  // within the panel
  int64_t end_column = 0;
  DepthRange depth;
};

// Adds a block's products to the running sums of kRows rows x kVectors vectors of columns, starting at row
// `row` of the tile and column `column` of the panel. partial: the sums, [kMaxTileRows][kPanelColumns]. What
// they become in y is FinishRows' work, so that this code exists once for all types of y.
template <typename T, int kRows, int kVectors>
void GroupKernel(const LinearTile& tile, int64_t row, const PanelBlock& block, int64_t column, float* partial,
                 Prefetch prefetch) {
  constexpr int64_t kStepDepth = sizeof(T) == 2 ? 2 : 1;
  const DepthRange& depth = block.depth;
  const T* x = static_cast<const T*>(tile.x) + row * tile.x_stride + depth.begin;
  const T* w = static_cast<const T*>(tile.panels) + block.panel * tile.panel_stride +
               depth.begin * kPanelColumns + column * kStepDepth;
  Accumulators<kRows, kVectors> acc;
  float* sums = partial + row * kPanelColumns + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc.value[r][v] = depth.first ? Zero() : Load(sums + r * kPanelColumns + v * kLanes);
    }
  }
  MultiplyAdd(acc, x, tile.x_stride, w, depth.end - depth.begin, prefetch);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums + r * kPanelColumns + v * kLanes, acc.value[r][v]);
  }
}

// All columns of a block for one group of rows.
template <typename T, int kRows>
void GroupColumns(const LinearTile& tile, int64_t row, const PanelBlock& block, float* partial,
                  Prefetch prefetch) {
  constexpr int kVectors = kRows == 1 ? kSingleRowVectors : kGroupVectors;
  int64_t column = block.first_column;
  while (column + kVectors * kLanes <= block.end_column) {
    GroupKernel<T, kRows, kVectors>(tile, row, block, column, partial, prefetch);
    prefetch = {};
    column += kVectors * kLanes;
  }
  if constexpr (kVectors * kLanes > kColumnsPerUnit) {
    constexpr int kHalf = static_cast<int>(kColumnsPerUnit) / kLanes;
    if (column < block.end_column) GroupKernel<T, kRows, kHalf>(tile, row, block, column, partial, prefetch);
  }
}

template <typename T>
void GroupOfRows(int64_t num_rows, const LinearTile& tile, int64_t row, const PanelBlock& block,
                 float* partial, Prefetch prefetch) {
  WithNumRows<kGroupRows>(num_rows,
                          [&]<int kRows>() { GroupColumns<T, kRows>(tile, row, block, partial, prefetch); });
}

// Writes the sums of a group of rows to y.
template <typename Y>
void FinishRows(const LinearTile& tile, int64_t row, int64_t num_rows, const PanelBlock& block,
                const float* partial) {
  const int64_t panel_column = block.panel * kPanelColumns;
  for (int64_t r = row; r < row + num_rows; ++r) {
    for (int64_t column = block.first_column; column < block.end_column; column += kLanes) {
      const int64_t y_column = panel_column + column;
      FinishOutputs(Load(partial + r * kPanelColumns + column),
                    tile.bias == nullptr ? nullptr : tile.bias + y_column,
                    static_cast<Y*>(tile.y) + r * tile.y_stride + y_column, tile.out_features - y_column);
    }
  }
}

template <typename T, typename Y>
void RunLinearTile(const LinearTile& tile) {
  alignas(64) float partial[kMaxTileRows * kPanelColumns];
  const int64_t num_groups = (tile.num_rows + kGroupRows - 1) / kGroupRows;
  const int64_t depth_block = num_groups == 1 ? tile.in_features : kDepthBlock<T>;
  for (int64_t unit = tile.first_unit; unit < tile.end_unit;) {
    PanelBlock block;
    block.panel = unit / kUnitsPerPanel;
    const int64_t panel_begin = block.panel * kUnitsPerPanel;
    const int64_t panel_end = panel_begin + kUnitsPerPanel;
    const int64_t unit_end = tile.end_unit < panel_end ? tile.end_unit : panel_end;
    block.first_column = (unit - panel_begin) * kColumnsPerUnit;
    block.end_column = (unit_end - panel_begin) * kColumnsPerUnit;
    unit = unit_end;
    for (int64_t begin = 0; begin < tile.in_features || begin == 0; begin += depth_block) {
      DepthRange& depth = block.depth;
      depth.begin = begin;
      depth.end = begin + depth_block < tile.in_features ? begin + depth_block : tile.in_features;
      depth.first = begin == 0;
      depth.last = depth.end == tile.in_features;
      const int64_t depth_bytes = (depth.end - begin) * kPanelColumns * static_cast<int64_t>(sizeof(T));
      const char* weights = reinterpret_cast<const char*>(
          static_cast<const T*>(tile.panels) + block.panel * tile.panel_stride + begin * kPanelColumns);
      // A single group reads each weight once: it fetches a little ahead of itself. Several groups read
      // the block again from the L2 cache: meanwhile they fetch what comes after it, to there.
      Prefetch prefetch;
      if (num_groups == 1) prefetch = {weights + tile.fetch.distance_bytes, 1024, tile.fetch.level};
      const int64_t quarter = num_groups < 4 ? num_groups : 4;
      int64_t row = 0;
      for (int64_t group = 0; group < num_groups; ++group) {
        // Groups as equal as can be: a small last one would use few accumulators.
        const int64_t group_rows = tile.num_rows / num_groups + (group < tile.num_rows % num_groups ? 1 : 0);
        if (num_groups > 1) {
          prefetch = {};
          if (group < quarter) {
            prefetch.next = weights + depth_bytes + group * depth_bytes / quarter / 64 * 64;
            prefetch.bytes_per_4_steps = (1024 / quarter + 63) / 64 * 64;
          }
        }
        GroupOfRows<T>(group_rows, tile, row, block, partial, prefetch);
        if (depth.last) FinishRows<Y>(tile, row, group_rows, block, partial);
        row += group_rows;
      }
    }
  }
}

// The kernels of this file's instruction set. f32: RunLinearTile<float, float>, or that of a set below, where
// this one has nothing new for fp32.
constexpr LinearKernels LinearKernelsWith(void (*f32)(const LinearTile& tile)) {
  return {
      .f32 = f32,
      .bf16_to_f32 = RunLinearTile<uint16_t, float>,
      .bf16_to_bf16 = RunLinearTile<uint16_t, uint16_t>,
      .max_group_rows = kGroupRows,
  };
}

}  // namespace
}  // namespace tandem
