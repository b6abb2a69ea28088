#include "execute/pooling_stage.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tandem {
namespace {

void ToFloats(const std::byte* data, DType dtype, std::vector<float>* values) {
  if (dtype == DType::kF32) {
    std::memcpy(values->data(), data, values->size() * sizeof(float));
    return;
  }
  const auto* const halves = reinterpret_cast<const uint16_t*>(data);
  for (size_t i = 0; i < values->size(); ++i)
    (*values)[i] = dtype == DType::kBF16 ? BF16ToF32(halves[i]) : F16ToF32(halves[i]);
}

}  // namespace

void PoolingWork::AddSpan(int64_t first_row, const RowSpan& span, std::optional<Pooling> pooling) {
  if (!pooling) return;
  Rows wanted = {.sequence = span.sequence, .first_row = first_row, .num_rows = span.num_tokens};
  if (*pooling == Pooling::kFirst) wanted.num_rows = span.start == 0 ? 1 : 0;
  if (*pooling == Pooling::kLast) {
    // The row that gives logits is that of the last token.
    wanted.num_rows = std::min<int64_t>(span.num_sampled(), 1);
    wanted.first_row += span.num_tokens - 1;
  }
  if (wanted.num_rows > 0) rows.push_back(wanted);
}

Result<PoolingStage> PoolingStage::Create(Device* device, const Decoder& decoder, int64_t max_rows) {
  PoolingStage stage;
  stage.dtype_ = decoder.dtype();
  stage.hidden_size_ = decoder.config().hidden_size;
  stage.max_rows_ = static_cast<size_t>(max_rows);
  const size_t row_bytes = static_cast<size_t>(stage.hidden_size_) * DTypeSize(stage.dtype_);
  TANDEM_ASSIGN_OR_RETURN(stage.memory_, device->Allocate(stage.max_rows_ * row_bytes, MemoryKind::kPinned,
                                                          "hidden states of embeddings"));
  return stage;
}

std::byte* PoolingStage::RowAt(size_t place) const {
  return memory_.as<std::byte>() + place * static_cast<size_t>(hidden_size_) * DTypeSize(dtype_);
}

void PoolingStage::Prepare(PoolingWork* work) {
  for (PoolingWork::Rows& rows : work->rows) {
    rows.place = num_placed_;
    num_placed_ += static_cast<size_t>(rows.num_rows);
  }
  TANDEM_CHECK(num_placed_ <= max_rows_, "{} rows of embeddings, room for {}", num_placed_, max_rows_);
}

void PoolingStage::Run(Stream& stream, const MatrixView& hidden, const PoolingWork& work) const {
  const size_t row_bytes = static_cast<size_t>(hidden_size_) * DTypeSize(dtype_);
  for (const PoolingWork::Rows& rows : work.rows) {
    stream.CopyRows(RowAt(rows.place), row_bytes, hidden.RowData(rows.first_row),
                    static_cast<size_t>(hidden.row_stride) * DTypeSize(dtype_), row_bytes,
                    static_cast<size_t>(rows.num_rows));
  }
}

void PoolingStage::Collect(const PoolingWork& work, std::vector<SequenceResult>* results) const {
  for (const PoolingWork::Rows& rows : work.rows) {
    const auto found = std::ranges::find(*results, rows.sequence, &SequenceResult::sequence);
    if (found == results->end()) continue;
    found->num_pooled_rows = rows.num_rows;
    found->pooled_rows.resize(static_cast<size_t>(rows.num_rows * hidden_size_));
    ToFloats(RowAt(rows.place), dtype_, &found->pooled_rows);
  }
}

}  // namespace tandem
