// The row-wise operations around the matrix products.
#pragma once

#include <array>
#include <cstdint>

#include "base/kv_layout.h"
#include "base/matrix_view.h"
#include "ops/linear.h"

namespace tandem {

// out[i, :] = table[ids[i], :]. table: [vocab, hidden] dense, fp32 or bf16; out: fp32 or the table's dtype.
// Instead of a table a backend that keeps quantized weights takes one, [vocab, hidden], whose values are
// rounded to its dtype; out is fp32 then. ids: [out.rows] int32, device memory; CHECKed against the
// vocabulary on the host backend.
struct EmbeddingArgs {
  MatrixView table;
  const int32_t* ids = nullptr;
  MatrixView out;
  const QuantizedLinearWeight* quantized = nullptr;
  // The table is a part of a vocabulary (a shard's): row 0 is that of first_id, and ids of other parts give
  // rows of zeros.
  bool is_part = false;
  int32_t first_id = 0;
};

// residual += delta (where delta.data is set); out = residual / rms(residual) * weight.
// residual: fp32; delta: fp32 or engine dtype; weight: [cols] fp32; out: engine dtype.
struct AddRmsNormArgs {
  MatrixView residual;
  MatrixView delta;
  const float* weight = nullptr;
  float eps = 1e-5F;
  MatrixView out;
};

// Rows [row_begin, row_begin + num_rows) of a batch, whose K and V are appended to kv.
struct KvRows {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  KvLayerView kv;

  bool contains(int64_t row) const { return row >= row_begin && row < row_begin + num_rows; }
};

// In place on qkv [rows, (num_heads + 2 * num_kv_heads) * head_dim]: optional RMS norm of every q and k head
// (Qwen3), then RoPE (rotate-half pairs j, j + head_dim / 2) at positions[row]; then K and V of a row r of
// one of `appends` are appended to slot slots[r] = block * block_size + offset of its kv (negative: not
// appended). Of other rows nothing is appended. The kv of all appends have one shape.
struct QkvPrepareArgs {
  MatrixView qkv;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  const float* q_norm_weight = nullptr;  // [head_dim] fp32 or nullptr
  const float* k_norm_weight = nullptr;
  float norm_eps = 1e-6F;
  const float* rope_table = nullptr;   // [max_position, head_dim]: cos of head_dim / 2 pairs, then sin
  const int32_t* positions = nullptr;  // [rows]
  const int32_t* slots = nullptr;      // [rows]; may be nullptr where there are no appends
  std::array<KvRows, 2> appends = {};  // in order of their rows, apart; without rows: nothing to append
};
// Aborts unless the appends are as described and fit the rows and heads.
void CheckAppends(const QkvPrepareArgs& args);

// out[rows, cols] = silu(gate) * up. gate_up: [rows, 2 * cols], as Linear with a gate-up weight leaves it
// (Ops::CreateGateUpWeight): on the host backend gate first, on the cuda backend in the order of
// ops/cuda/linear/gate_up_order.h.
struct SiluMulArgs {
  MatrixView gate_up;
  MatrixView out;
};

// out[i, :] = in[indices[i], :], same dtype.
struct GatherRowsArgs {
  MatrixView in;
  const int32_t* indices = nullptr;  // [out.rows], device memory
  MatrixView out;
};

}  // namespace tandem
