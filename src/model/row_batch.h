// Rows that go through the layers together (a sub-batch), with their activations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "base/result.h"
#include "device/device.h"

namespace tandem {

class Decoder;

// Device memory for up to max_rows rows. The main sub-batch has one, the cohorts that make visits of their
// own share another.
class RowBuffers {
 public:
  // Errors: kResourceExhausted.
  static Result<RowBuffers> Allocate(Device* device, const Decoder& decoder, int64_t max_rows);
  // What Allocate takes.
  static size_t BytesFor(const Decoder& decoder, int64_t max_rows);
  int64_t max_rows() const { return max_rows_; }

 private:
  friend class RowBatch;
  // Points the views into memory from base on and returns its size.
  size_t LayOut(const Decoder& decoder, std::byte* base);

  Buffer memory_;
  int64_t max_rows_ = 0;
  MatrixView residual_;
  MatrixView delta_;
  MatrixView hidden_;
  MatrixView qkv_;
  MatrixView attention_out_;
  MatrixView gate_up_;
  MatrixView mlp_;
};

// Some rows of a RowBuffers, and what their embedding, RoPE and KV append need.
//
//   residual [rows, hidden] fp32       the residual stream, without delta
//   delta    [rows, hidden] product    output of the last block, added to residual by the next norm
//   hidden   [rows, hidden] dtype      normed input of the next product
//   qkv      [rows, (num_heads + 2 num_kv_heads) head_dim] product
//   attention_out [rows, num_heads head_dim] dtype
//   gate_up  [rows, 2 intermediate] product   scratch of Ops::GateUp
//   mlp      [rows, intermediate] dtype
//
// product: Ops::ProductDType, fp32 or dtype as the backend likes it.
class RowBatch {
 public:
  // The first rows.
  RowBatch(const RowBuffers& buffers, int64_t rows) : RowBatch(buffers, 0, rows) {}
  // Rows [row_begin, row_begin + rows).
  RowBatch(const RowBuffers& buffers, int64_t row_begin, int64_t rows);

  // Leaves rows at the end out or takes them in again: as many as it was made with at most.
  void Resize(int64_t new_num_rows);

  int64_t num_rows = 0;
  MatrixView residual;
  MatrixView delta;
  MatrixView hidden;
  MatrixView qkv;
  MatrixView attention_out;
  MatrixView gate_up;
  MatrixView mlp;
  bool has_delta = false;  // whether delta holds something not yet in residual

  // Device memory, [num_rows]; set by the executor.
  const int32_t* token_ids = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;  // of the tier that PreProjection appends to; negative: not appended there

 private:
  int64_t max_rows_ = 0;
};

}  // namespace tandem
