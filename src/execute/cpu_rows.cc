#include "execute/cpu_rows.h"

#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// Flags carry 32 bits, part of which an abort needs; values start anew long before.
constexpr uint32_t kLastValue = 1U << 24;

size_t Bytes(const MatrixView& dense) {
  return static_cast<size_t>(dense.rows * dense.cols) * DTypeSize(dense.dtype);
}

}  // namespace

CpuTierRows::CpuTierRows(const SharedParts& parts, std::string_view name)
    : parts_(parts),
      name_(name),
      projected_(parts.device->CreateEvent()),
      arrived_(parts.device->CreateEvent()),
      ready_(parts.device->CreateFlag()),
      done_(parts.device->CreateFlag()) {}

Result<std::unique_ptr<CpuTierRows>> CpuTierRows::Create(const SharedParts& parts, int64_t max_rows,
                                                         std::string_view name) {
  auto rows = std::unique_ptr<CpuTierRows>(new CpuTierRows(parts, name));
  const ModelConfig& config = parts.decoder->config();
  const auto allocate = [&](int64_t cols, DType dtype) {
    return parts.device->Allocate(static_cast<size_t>(max_rows * cols) * DTypeSize(dtype),
                                  MemoryKind::kPinned, "rows of CPU attention", {.flag = "max-num-seqs"});
  };
  TANDEM_ASSIGN_OR_RETURN(rows->qkv_memory_, allocate(config.qkv_width(), parts.decoder->product_dtype()));
  TANDEM_ASSIGN_OR_RETURN(rows->out_memory_, allocate(config.q_width(), parts.decoder->dtype()));
  return rows;
}

void CpuTierRows::Begin(std::vector<DecodeSequence> rows) {
  base_ = ValueOf(num_submitted_ - 1);
  num_submitted_ = 0;
  if (base_ > kLastValue) Reset();
  num_rows_ = static_cast<int64_t>(rows.size());
  unplanned_ = std::move(rows);
  plan_.reset();
  TANDEM_CHECK(Bytes(qkv()) <= qkv_memory_.size_bytes(), "{} cpu rows", num_rows());
}

void CpuTierRows::PlanAttention() {
  const KvLayerView kv = parts_.kv->LayerView(Tier::kCpu, 0);
  const ModelConfig& config = parts_.decoder->config();
  const DecodeShape shape = {.kv = kv.shape,
                             .num_heads = config.num_heads,
                             .sliding_window = config.sliding_window,
                             .heads_per_part = kv.heads_per_part,
                             .most_readers = parts_.cpu_attention->most_readers()};
  plan_ = std::make_unique<DecodePlan>(std::move(unplanned_), shape, parts_.cpu_attention->num_threads());
  unplanned_.clear();
}

MatrixView CpuTierRows::qkv() const {
  return MatrixView::Dense(qkv_memory_.data(), parts_.decoder->product_dtype(), num_rows(),
                           parts_.decoder->config().qkv_width());
}

MatrixView CpuTierRows::attention_out() const {
  return MatrixView::Dense(out_memory_.data(), parts_.decoder->dtype(), num_rows(),
                           parts_.decoder->config().q_width());
}

void CpuTierRows::Submit(int64_t layer, int64_t wanted_at, int64_t period) {
  if (layer + 1 == num_submitted_) return;
  TANDEM_CHECK(layer == num_submitted_, "layer {} submitted after {}", layer, num_submitted_ - 1);
  ++num_submitted_;
  if (!plan_) PlanAttention();
  nobody_waits_ = wanted_at >= 0;
  const ModelConfig& config = parts_.decoder->config();
  const int64_t q_width = config.q_width();
  const int64_t kv_width = config.kv_width();
  const MatrixView rows = qkv();
  parts_.cpu_attention->Submit({.plan = plan_.get(),
                                .layer = {.kv = parts_.kv->LayerView(Tier::kCpu, layer),
                                          .q = rows.Columns(0, q_width),
                                          .k = rows.Columns(q_width, kv_width),
                                          .v = rows.Columns(q_width + kv_width, kv_width),
                                          .out = attention_out(),
                                          .lse = nullptr,
                                          .scale = parts_.decoder->attention_scale()},
                                .ready = ready_.get(),
                                .ready_value = ValueOf(layer),
                                .done = done_.get(),
                                .done_value = ValueOf(layer),
                                .wanted_at = wanted_at,
                                .period = period,
                                .name = name_,
                                .number = layer});
}

void CpuTierRows::Attend(int64_t layer, const RowBatch& batch, int64_t row_begin) {
  Submit(layer, -1, 0);
  parts_.compute_stream().Record(*projected_);
  Lane& out = parts_.lanes->rows_out();
  Stream& out_stream = *out.stream;
  out_stream.Wait(*projected_);
  out.stamps.Detail(out_stream, {});
  out_stream.Copy(qkv_memory_.data(), batch.qkv.RowData(row_begin), Bytes(qkv()));
  out_stream.SetFlag(*ready_, ValueOf(layer));
  out.stamps.Detail(out_stream, name_, layer);
}

void CpuTierRows::AwaitOutput(int64_t layer, const RowBatch& batch, int64_t row_begin) {
  // It was submitted for a ride, and now the device waits.
  if (nobody_waits_) parts_.cpu_attention->Hurry(ready_.get());
  nobody_waits_ = false;
  Lane& in = parts_.lanes->rows_in();
  Stream& in_stream = *in.stream;
  // Implied by the flag, unless it is aborted: the layer before is still to read its own O then.
  in_stream.Wait(*projected_);
  in_stream.WaitFlag(*done_, ValueOf(layer));
  in.stamps.Detail(in_stream, {});
  in_stream.Copy(batch.attention_out.RowData(row_begin), out_memory_.data(), Bytes(attention_out()));
  in.stamps.Detail(in_stream, name_, layer);
  in_stream.Record(*arrived_);
  parts_.compute_stream().Wait(*arrived_);
}

void CpuTierRows::Withdraw() {
  TANDEM_CHECK(!OwesOutput(), "withdrawn amid attention");
  withdrawing_ = ready_->value() != ValueOf(num_submitted_ - 1);
  // It has no other task of these rows, so an aborted `done` is the last that it does with them.
  if (withdrawing_) ready_->Abort();
}

void CpuTierRows::EndWithdraw() {
  if (withdrawing_) Reset();
}

void CpuTierRows::Abort() {
  ready_->Abort();
  done_->Abort();
}

void CpuTierRows::Reset() {
  ready_->Reset();
  done_->Reset();
  base_ = 0;
  num_submitted_ = 0;
  withdrawing_ = false;
}

}  // namespace tandem
