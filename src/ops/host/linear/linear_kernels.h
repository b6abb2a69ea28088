// Matrix product kernels by instruction set. Pure functions of one thread.
//
// Weights lie in panels of 64 output columns: fp32 [panel][k][64], bf16 [panel][k / 2][64][2] (the second of
// a last odd k is zero). Columns past the weight's are zero.
#pragma once

#include <cstdint>
#include <string>

#include "simd/cpu_isa.h"
#include "simd/fetch_level.h"

namespace tandem {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kColumnsPerUnit = 32;  // what a task's column range is counted in
constexpr int64_t kUnitsPerPanel = kPanelColumns / kColumnsPerUnit;
constexpr int64_t kMaxTileRows = 128;

// How a product of few rows, whose weights are read once, fetches them. No result depends on it.
struct ProductFetch {
  FetchLevel level = FetchLevel::kL2;
  int64_t distance_bytes = 4096;  // ahead of what is multiplied
  bool operator==(const ProductFetch&) const = default;
};

// "L2, 4096 bytes ahead".
std::string DescribeFetch(const ProductFetch& fetch);

// A rectangle of y: num_rows rows, columns [first_unit, end_unit) * 32.
struct LinearTile {
  const void* x = nullptr;  // fp32 or bf16, as the weights
  int64_t x_stride = 0;     // elements
  int64_t num_rows = 0;     // at most kMaxTileRows
  const void* panels = nullptr;
  int64_t panel_stride = 0;  // elements from one panel to the next
  int64_t in_features = 0;
  int64_t first_unit = 0;
  int64_t end_unit = 0;
  const float* bias = nullptr;  // of column 0, as long as all panels; or nullptr
  void* y = nullptr;            // row 0, column 0
  int64_t y_stride = 0;         // elements
  int64_t out_features = 0;     // valid columns of y
  ProductFetch fetch;
};

// Every output is one chain of multiply-adds in order of k, whatever the tile: its bits depend on its row of
// x and its column of W only.
struct LinearKernels {
  void (*f32)(const LinearTile& tile) = nullptr;
  void (*bf16_to_f32)(const LinearTile& tile) = nullptr;
  void (*bf16_to_bf16)(const LinearTile& tile) = nullptr;
  int max_group_rows = 1;  // rows that share one read of the weights
};

const LinearKernels& LinearKernelsPortable();
#if defined(__x86_64__)
const LinearKernels& LinearKernelsAvx2();
const LinearKernels& LinearKernelsAvx512();
const LinearKernels& LinearKernelsAvx512Bf16();
#elif defined(__aarch64__)
const LinearKernels& LinearKernelsNeon();
const LinearKernels& LinearKernelsNeonBf16();
#endif
const LinearKernels& LinearKernelsFor(CpuIsa isa);

}  // namespace tandem
