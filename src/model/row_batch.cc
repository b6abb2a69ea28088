#include "model/row_batch.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "model/decoder.h"

namespace tandem {

size_t RowBuffers::LayOut(const Decoder& decoder, std::byte* base) {
  const ModelConfig& config = decoder.config();
  const DType dtype = decoder.dtype();
  const DType product = decoder.product_dtype();
  struct Part {
    MatrixView* view;
    DType dtype;
    int64_t cols;
  };
  const std::array<Part, 7> parts = {{
      {&residual_, DType::kF32, config.hidden_size},
      {&delta_, product, config.hidden_size},
      {&hidden_, dtype, config.hidden_size},
      {&qkv_, product, config.qkv_width()},
      {&attention_out_, dtype, config.q_width()},
      {&gate_up_, product, 2 * config.intermediate_size},
      {&mlp_, dtype, config.intermediate_size},
  }};
  constexpr size_t kAlignment = 256;
  size_t size_bytes = 0;
  for (const Part& part : parts) {
    if (base != nullptr) *part.view = MatrixView::Dense(base + size_bytes, part.dtype, max_rows_, part.cols);
    const size_t bytes = static_cast<size_t>(max_rows_ * part.cols) * DTypeSize(part.dtype);
    size_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return size_bytes;
}

size_t RowBuffers::BytesFor(const Decoder& decoder, int64_t max_rows) {
  RowBuffers buffers;
  buffers.max_rows_ = max_rows;
  return buffers.LayOut(decoder, nullptr);
}

Result<RowBuffers> RowBuffers::Allocate(Device* device, const Decoder& decoder, int64_t max_rows) {
  RowBuffers buffers;
  buffers.max_rows_ = max_rows;
  TANDEM_ASSIGN_OR_RETURN(buffers.memory_,
                          device->Allocate(BytesFor(decoder, max_rows), MemoryKind::kDevice, "activations",
                                           {.flag = "max-num-batched-tokens"}));
  buffers.LayOut(decoder, buffers.memory_.as<std::byte>());
  return buffers;
}

RowBatch::RowBatch(const RowBuffers& buffers, int64_t row_begin, int64_t rows)
    : num_rows(rows), max_rows_(rows) {
  TANDEM_CHECK(row_begin + rows <= buffers.max_rows_, "rows [{}, +{}) in buffers for {}", row_begin, rows,
               buffers.max_rows_);
  residual = buffers.residual_.Rows(row_begin, rows);
  delta = buffers.delta_.Rows(row_begin, rows);
  hidden = buffers.hidden_.Rows(row_begin, rows);
  qkv = buffers.qkv_.Rows(row_begin, rows);
  attention_out = buffers.attention_out_.Rows(row_begin, rows);
  gate_up = buffers.gate_up_.Rows(row_begin, rows);
  mlp = buffers.mlp_.Rows(row_begin, rows);
}

void RowBatch::Resize(int64_t new_num_rows) {
  TANDEM_CHECK(new_num_rows <= max_rows_, "{} rows in a batch of {}", new_num_rows, max_rows_);
  num_rows = new_num_rows;
  for (MatrixView* view : {&residual, &delta, &hidden, &qkv, &attention_out, &gate_up, &mlp})
    view->rows = new_num_rows;
}

}  // namespace tandem
