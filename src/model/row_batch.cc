#include "model/row_batch.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<RowBuffers> RowBuffers::Allocate(Device* device, const ModelConfig& config, DType dtype,
                                        int64_t max_rows) {
  RowBuffers buffers;
  buffers.max_rows_ = max_rows;
  struct Part {
    MatrixView* view;
    DType dtype;
    int64_t cols;
  };
  const int64_t qkv_cols = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim;
  const std::array<Part, 7> parts = {{
      {&buffers.residual_, DType::kF32, config.hidden_size},
      {&buffers.delta_, DType::kF32, config.hidden_size},
      {&buffers.hidden_, dtype, config.hidden_size},
      {&buffers.qkv_, DType::kF32, qkv_cols},
      {&buffers.attention_out_, dtype, config.num_heads * config.head_dim},
      {&buffers.gate_up_, DType::kF32, 2 * config.intermediate_size},
      {&buffers.mlp_, dtype, config.intermediate_size},
  }};
  constexpr size_t kAlignment = 256;
  const auto part_bytes = [&](const Part& part) {
    const size_t bytes = static_cast<size_t>(max_rows * part.cols) * DTypeSize(part.dtype);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  size_t total_bytes = 0;
  for (const Part& part : parts) total_bytes += part_bytes(part);
  TANDEM_ASSIGN_OR_RETURN(buffers.memory_, device->Allocate(total_bytes, MemoryKind::kDevice, "activations"));
  auto* next = buffers.memory_.as<std::byte>();
  for (const Part& part : parts) {
    *part.view = MatrixView::Dense(next, part.dtype, max_rows, part.cols);
    next += part_bytes(part);
  }
  return buffers;
}

RowBatch::RowBatch(const RowBuffers& buffers, int64_t rows) : num_rows(rows) {
  TANDEM_CHECK(rows <= buffers.max_rows_, "{} rows in buffers for {}", rows, buffers.max_rows_);
  residual = buffers.residual_.Rows(0, rows);
  delta = buffers.delta_.Rows(0, rows);
  hidden = buffers.hidden_.Rows(0, rows);
  qkv = buffers.qkv_.Rows(0, rows);
  attention_out = buffers.attention_out_.Rows(0, rows);
  gate_up = buffers.gate_up_.Rows(0, rows);
  mlp = buffers.mlp_.Rows(0, rows);
}

}  // namespace tandem
