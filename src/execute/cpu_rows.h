// The rows of one sub-batch whose KV lies in the cpu tier, and their exchange with CPU attention.
//
//   compute stream    pre i ............................. [O i] post i
//   out stream              [pre i] Q/K/V to host, ready
//   CPU attention                                    [ready] attention i, done
//   in stream                                                          [done] O to the device
//
// [..] are waits: for events between streams, for flags between streams and CPU attention. No host thread
// takes part once the layer is enqueued. Riding cohorts (execute/riding.h) exchange the same memory and flags
// with their own stream: a cohort may change from the one way to the other between two layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/decode_plan.h"
#include "device/device.h"
#include "execute/iteration_stamps.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "plan/iteration_plan.h"

namespace tandem {

// What the cpu rows of all sub-batches share. Everything outlives them.
struct CpuRowsParts {
  Device* device = nullptr;
  const Decoder* decoder = nullptr;
  const KvBooks* books = nullptr;
  KvMemory* memory = nullptr;
  CpuAttention* cpu_attention = nullptr;
  Stream* compute_stream = nullptr;
  Stream* out_stream = nullptr;
  Stream* in_stream = nullptr;
  IterationStamps* out_stamps = nullptr;
  IterationStamps* in_stamps = nullptr;
};

// Engine thread only.
class CpuTierRows {
 public:
  // name: of the sub-batch, for timelines; static storage. Errors: kResourceExhausted.
  static Result<std::unique_ptr<CpuTierRows>> Create(const CpuRowsParts& parts, int64_t max_rows,
                                                     std::string_view name);

  // A new token of every row: layers 0, 1, ... follow. What was under way has ended.
  void Begin(const std::vector<DecodeRow>& rows);
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

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
  explicit CpuTierRows(const CpuRowsParts& parts, std::string_view name);
  // Of the token that has begun. With its first layer, when the device has something to do meanwhile.
  void PlanAttention();

  CpuRowsParts parts_;
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
  std::vector<DecodeRow> rows_;
  std::unique_ptr<DecodePlan> plan_;  // of rows_; null before the first layer
};

// Blocks of the tokens up to a row's.
std::vector<int32_t> BlocksOf(const KvBooks& books, const DecodeRow& row);

}  // namespace tandem
