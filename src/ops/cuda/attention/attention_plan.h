// The cuda backend's attention plan: which kernel takes which sequences of a batch, and the tables they read.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "device/staging_pair.h"
#include "ops/attention.h"
#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention.h"
#include "ops/cuda/attention/prefill_attention.h"

namespace tandem {

// Sequences of one row go to the decode kernel, the others to FlashInfer; what they do not support to the
// fallback. A batch of decodes, an empty one too, is one launch that depends on the shape only: captured in a
// graph, it runs with whatever batch of decodes the plan holds by then.
class CudaAttentionPlan : public AttentionPlan {
 public:
  // device: of the cuda backend, outlives the plan. flash_attention3: PrefillAttention's long_kernel. Errors:
  // kResourceExhausted.
  static Result<std::unique_ptr<CudaAttentionPlan>> Create(Device* device, const AttentionCapacity& capacity,
                                                           const CudaTarget& target, bool flash_attention3);

  // Enqueues one copy, and one more if there are prefills. What ran with the plan before the last must have
  // ended.
  void Plan(CudaStream& stream, const AttentionBatch& batch);
  void Run(CudaStream& stream, const AttentionArgs& args) const;

 private:
  CudaAttentionPlan(const AttentionCapacity& capacity, const CudaTarget& target);
  // Finds the prefills among the sequences: [prefill_begin_, prefill_end_), single rows between them too if
  // FlashInfer takes them, as it wants rows that follow each other.
  void FindPrefills(const AttentionBatch& batch);
  bool IsPrefill(const AttentionBatch& batch, int64_t sequence) const;
  void CheckSequence(const AttentionBatch& batch, const AttentionSequence& sequence) const;
  void CheckArgs(const AttentionArgs& args) const;

  AttentionCapacity capacity_;
  bool uses_decode_kernel_ = false;
  DecodeLaunch launch_;
  PlanOffsets offsets_;
  std::unique_ptr<PrefillAttention> prefill_;  // null: not supported

  StagingPair staging_;
  Buffer words_;
  Buffer partials_;
  Buffer counters_;

  // Of the current batch.
  int64_t num_rows_ = 0;
  int64_t num_decodes_ = 0;
  int64_t num_sequences_ = 0;
  int64_t prefill_begin_ = 0;
  int64_t prefill_end_ = 0;
  bool prefills_follow_each_other_ = false;
};

}  // namespace tandem
