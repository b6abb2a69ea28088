// The rows of one sub-batch whose KV lies in the cpu tier, and their exchange with CPU attention.
//
//   compute stream    pre i ............................. [O i] post i
//   out stream              [pre i] Q/K/V to host, ready
//   CPU attention                                    [ready] attention i, done
//   in stream                                                          [done] O to the device
//
// [..] are waits: for events between streams, for flags between streams and CPU attention. No host thread
// takes part once the layer is enqueued. Riding cohorts (execute/riding_pass.h) exchange the same memory and
// flags with their own stream: a cohort may change from the one way to the other between two layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/matrix_view.h"
#include "base/result.h"
#include "cpu_attention/decode_plan.h"
#include "device/device.h"
#include "execute/shared_parts.h"
#include "model/row_batch.h"

namespace tandem {

// Engine thread only.
class CpuTierRows {
 public:
  // name: of the sub-batch, for timelines; static storage. Errors: kResourceExhausted.
  static Result<std::unique_ptr<CpuTierRows>> Create(const SharedParts& parts, int64_t max_rows,
                                                     std::string_view name);

  // A new token of every row: layers 0, 1, ... follow. What was under way has ended.
  void Begin(std::vector<DecodeSequence> rows);
  int64_t num_rows() const { return num_rows_; }

  // Has CPU attention wait for Q/K/V of the layer; once a layer, the next call for the same one does nothing.
  // wanted_at, period: as AttentionTask has them.
  void Submit(int64_t layer, int64_t wanted_at, int64_t period);
  // Q/K/V of the layer, rows [row_begin, row_begin + num_rows) of batch, are on the compute stream: submits,
  // and sends them off.
  void Attend(int64_t layer, const RowBatch& batch, int64_t row_begin);
  // What is enqueued on the compute stream from now on finds O of the layer, which was submitted in this
  // iteration or another, in the same rows of batch.
  void AwaitOutput(int64_t layer, const RowBatch& batch, int64_t row_begin);

  // The exchange's memory and flags, pinned, [num_rows, *]: what the flags carry for a layer.
  MatrixView qkv() const;
  MatrixView attention_out() const;
  Flag* ready() const { return ready_.get(); }
  Flag* done() const { return done_.get(); }
  uint32_t ValueOf(int64_t layer) const { return base_ + static_cast<uint32_t>(layer) + 1; }

  // Whether CPU attention has Q/K/V that it has not answered yet. While no iteration runs this is certain.
  bool OwesOutput() const { return ready_->value() > done_->value(); }
  // Takes back what was submitted and never got its Q/K/V, and never will. Where nothing is owed and no
  // iteration runs.
  void Withdraw();
  // Whether CPU attention has let go of it. Then, once, after a Withdraw: EndWithdraw.
  bool withdrawn() const { return !withdrawing_ || done_->aborted(); }
  void EndWithdraw();

  // Releases every stream that waits, with undefined rows, and keeps CPU attention from starting what it has
  // not.
  void Abort();
  // After an Abort, once CPU attention is idle and the streams have run.
  void Reset();

 private:
  explicit CpuTierRows(const SharedParts& parts, std::string_view name);
  // Of the token that has begun. With its first layer, when the device has something to do meanwhile.
  void PlanAttention();

  SharedParts parts_;
  std::string_view name_;
  Buffer qkv_memory_;  // pinned
  Buffer out_memory_;
  std::unique_ptr<Event> projected_;
  std::unique_ptr<Event> arrived_;
  std::unique_ptr<Flag> ready_;
  std::unique_ptr<Flag> done_;
  uint32_t base_ = 0;          // what ready and done carried when the token began
  int64_t num_submitted_ = 0;  // layers of the token
  bool nobody_waits_ = false;  // for the one submitted last
  bool withdrawing_ = false;
  int64_t num_rows_ = 0;
  std::vector<DecodeSequence> unplanned_;  // the rows, before the first layer
  std::unique_ptr<DecodePlan> plan_;       // of the rows, from then on
};

}  // namespace tandem
