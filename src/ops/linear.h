// Linear operations: y = x W^T (+ bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/matrix_view.h"
#include "base/quantized_rows.h"
#include "base/random_values.h"
#include "base/result.h"
#include "base/weight_format.h"

namespace tandem {

// A weight [out_features, in_features] in the layout its backend multiplies fastest. Filled once at load
// time, then immutable.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  virtual int64_t out_features() const = 0;
  virtual int64_t in_features() const = 0;
  // Of x, and of the weight unless its format is quantized.
  virtual DType dtype() const = 0;
  virtual WeightFormat format() const { return {}; }
  // Of memory, bias left out.
  virtual size_t size_bytes() const = 0;
  // Rows [row_begin, row_begin + num_rows) of the weight, host memory, dense [num_rows, in_features] in
  // dtype(). Thread-safe for disjoint rows. In a gate-up weight (Ops::CreateGateUpWeight) the rows of gate
  // are the first half and those of up the second, whatever order the backend keeps them in.
  virtual void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) = 0;
  // fp32 bias values of the same rows. A weight without a call has no bias.
  virtual void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) = 0;
  // Weights without a checkpoint. Blocks. Of a quantized weight HashedRows, and never a part: its codes
  // depend on whole rows.
  virtual void FillRandom(const RandomValues& values) = 0;
};

// What a weight is made for.
struct QuantizedWeightShape {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType dtype = DType::kF32;  // of x
  bool is_gate_up = false;    // of GateUp: gate rows [0, out_features / 2), up rows behind them
  // Of a quantized weight: its column i is multiplied with column column_order[i] of x. Empty: with column i.
  // Host memory, copied.
  std::span<const int32_t> column_order;
};

// A weight that is kept as codes. Loaded by LoadRows, its rows are rounded to the nearest codes
// (QuantizeRows).
//
// Products are those of the dequantized weights. At fp32 they are exact but for the order of sums, which is
// one for all numbers of rows; at bf16 the weights are rounded to bf16 or not at all, and few rows may take
// another path than many, on every processor. With weights of FP8 a GPU may round each row of x to FP8 too.
class QuantizedLinearWeight : public LinearWeight {
 public:
  // Rows [row_begin, row_begin + rows.num_rows) in format(). Scales, minimums and units of integers are
  // rounded to fp16 times a power of two that suits the row: what an fp16 can hold stays exact, and so do
  // zero points and the multiples of units (on the cuda backend these become minimums and scales of fp16).
  // Scales of FP8 stay fp32. Thread-safe for disjoint rows.
  virtual void LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) = 0;
};

// y[rows, out] = x[rows, in] W^T + bias. x: the weight's dtype. y: fp32 or the weight's dtype.
//
// Row-independent on the host backend: a row of y has the same bits whatever the other rows are and however
// many. This is what makes every strategy give the same tokens at fp32. It holds for bf16 too, except on
// processors with AMX, where bf16 products of many rows take another path than those of few.
struct LinearArgs {
  MatrixView x;
  const LinearWeight* weight = nullptr;
  MatrixView y;
};

// y[rows, mlp] = silu(x Wg^T) * (x Wu^T): a product and what Ops::SiluMul makes of it.
struct GateUpArgs {
  MatrixView x;                          // [rows, in], the weight's dtype
  const LinearWeight* weight = nullptr;  // of Ops::CreateGateUpWeight
  MatrixView scratch;  // [rows, 2 mlp], Ops::ProductDType; its content is undefined afterwards
  MatrixView y;        // [rows, mlp], the weight's dtype
};

// Products whose speed matters: every count of rows with weights of one shape, as they follow each other in
// the layers of a model (so that a measurement does not find its weight in a cache). Of gate-up weights it is
// Ops::GateUp whose speed matters.
struct LinearTuning {
  std::span<const LinearWeight* const> weights;  // same shape and dtype, at least one
  DType y_dtype = DType::kF32;
  std::span<const int64_t> row_counts;
};

}  // namespace tandem
