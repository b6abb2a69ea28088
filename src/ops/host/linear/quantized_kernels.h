// Products with quantized weights by instruction set (quantized_layout.h). Pure functions of one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/host/linear/linear_kernels.h"
#include "ops/host/linear/quantized_layout.h"
#include "simd/cpu_isa.h"

namespace tandem {

// A rectangle of y: num_rows rows, columns [first_unit, end_unit) * 32.
struct QuantizedTile {
  const void* x = nullptr;  // fp32, bf16, or integers (IntegerRow)
  int64_t x_stride = 0;     // elements
  // Of bf16 and integer rows: sums of the values of every group, [num_rows, num_groups]. Those of bf16 go on
  // for 15 rows more. nullptr where the kernels have no sum_groups.
  const float* group_sums = nullptr;
  // Of integer rows: see IntegerRow.
  const int32_t* first_sums = nullptr;
  const float* x_scales = nullptr;
  int64_t num_rows = 0;  // at most kMaxTileRows
  QuantizedLayout layout;
  const std::byte* panels = nullptr;
  const float* factors = nullptr;  // of column 0, as long as all panels
  int64_t first_unit = 0;
  int64_t end_unit = 0;
  const float* bias = nullptr;  // of column 0, as long as all panels; or nullptr
  void* y = nullptr;            // row 0, column 0
  int64_t y_stride = 0;         // elements
  int64_t out_features = 0;     // valid columns of y
};

// Where QuantizedKernels::to_integers puts a row of x: x[k] = scale * integer, |integer| < 2^15.
struct IntegerRow {
  uint16_t* values = nullptr;  // [in_features], in an order that the kernels know
  float* scale = nullptr;
  float* group_sums = nullptr;    // [num_groups]
  int32_t* first_sums = nullptr;  // [num_groups], what sums of codes times integers begin with
};

struct QuantizedKernels {
  // Every output is one chain of multiply-adds with the dequantized weights in order of k: the bits that
  // LinearKernels::f32 gives with those weights.
  void (*f32)(const QuantizedTile& tile) = nullptr;
  // Sums of x times codes in fp32, group by group: the weights are not rounded to bf16.
  void (*bf16_to_f32)(const QuantizedTile& tile) = nullptr;
  void (*bf16_to_bf16)(const QuantizedTile& tile) = nullptr;
  // The same with bf16 rows as integers: for few rows, where they are faster.
  void (*to_integers)(const QuantizedLayout& layout, const uint16_t* row, const IntegerRow& to) = nullptr;
  void (*integers_to_f32)(const QuantizedTile& tile) = nullptr;
  void (*integers_to_bf16)(const QuantizedTile& tile) = nullptr;
  // With more rows the next in this order is faster: integers, bf16, dequantizing panels for LinearKernels.
  int64_t max_rows_integers = 0;       // of codes of 4 bits
  int64_t max_rows_integers_int8 = 0;  // of 8 bits
  int64_t max_rows_bf16 = 0;
  int64_t max_rows_f32 = 0;
  // A panel of LinearKernels, with in_features of its layout. panel, factors: of the panel.
  void (*dequantize_f32)(const QuantizedLayout& layout, const std::byte* panel, const float* factors,
                         float* to) = nullptr;
  void (*dequantize_bf16)(const QuantizedLayout& layout, const std::byte* panel, const float* factors,
                          uint16_t* to) = nullptr;
  // sums[g] = sum of the values [g * group_size, ...) of a row. nullptr: none are needed.
  void (*sum_groups)(const uint16_t* row, int64_t group_size, int64_t num_groups, float* sums) = nullptr;
};

const QuantizedKernels& QuantizedKernelsPortable();
#if defined(__x86_64__)
const QuantizedKernels& QuantizedKernelsAvx2();
const QuantizedKernels& QuantizedKernelsAvx512();
const QuantizedKernels& QuantizedKernelsAvx512Bf16();
const QuantizedKernels& QuantizedKernelsAmx();
#elif defined(__aarch64__)
const QuantizedKernels& QuantizedKernelsNeon();
const QuantizedKernels& QuantizedKernelsNeonDot();
const QuantizedKernels& QuantizedKernelsNeonBf16();
#endif
const QuantizedKernels& QuantizedKernelsFor(CpuIsa isa);

// Of weights whose codes are E4M3 (QuantizedLayout::is_fp8). They need no sums of x.
const QuantizedKernels& Fp8KernelsPortable();
#if defined(__x86_64__)
const QuantizedKernels& Fp8KernelsAvx2();
const QuantizedKernels& Fp8KernelsAvx512();
const QuantizedKernels& Fp8KernelsAvx512Bf16();
#elif defined(__aarch64__)
const QuantizedKernels& Fp8KernelsNeon();
#endif
const QuantizedKernels& Fp8KernelsFor(CpuIsa isa);

}  // namespace tandem
