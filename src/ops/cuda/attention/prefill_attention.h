// Attention of prefill chunks over the paged KV cache of the gpu tier, through FlashInfer's kernels: FA2
// everywhere, FA3 (TANDEM_FLASH_ATTENTION3) on compute capability 9.0 for many rows without a window.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/kv_layout.h"
#include "base/result.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"
#include "device/staging_pair.h"
#include "ops/attention.h"
#include "ops/cuda/attention/prefill_plan.h"

namespace tandem {

// One plan with its memory. Head kv_head of block b of a layer is one piece: K [block_size x head_dim], V the
// same.
class PrefillAttention {
 public:
  // bf16 (compute capability 8.0 on) and fp16 (7.5 on), head_dim 64, 128 and 256, blocks of 32, any group.
  static bool Supports(const KvShape& kv, int64_t num_heads, const CudaTarget& target);
  // What runs, for the log: "FA2" or "FA2, FA3 from 512 rows on".
  static std::string Description(const KvShape& kv, const CudaTarget& target);
  // CHECKs Supports. device: of the cuda backend, outlives the plan. long_kernel: FA3, where it can run.
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<PrefillAttention>> Create(Device* device, const AttentionCapacity& capacity,
                                                          const CudaTarget& target, bool long_kernel = true);

  // The rows of a sequence follow those of the one before it; the first may begin anywhere. kv, num_heads and
  // sliding_window (as in AttentionArgs) are those of every Run. What ran with the plan before the last must
  // have ended.
  void Plan(CudaStream& stream, std::span<const AttentionSequence> sequences, const KvShape& kv,
            int64_t num_heads, int64_t sliding_window);
  // Only the planned rows of q are read and of out written. q: rows aligned to 16 bytes, any stride; out:
  // dense rows. args.plan is not looked at. The result of a row depends on the batch only through roundings.
  void Run(CudaStream& stream, const AttentionArgs& args) const;

 private:
  PrefillAttention(const AttentionCapacity& capacity, const PrefillShape& shape);
  void CheckArgs(const AttentionArgs& args) const;

  AttentionCapacity capacity_;
  PrefillShape shape_;
  PrefillPlan plan_;
  StagingPair staging_;  // the plan's integers
  Buffer ints_;          // device: the same
  Buffer partial_;       // device: partial results of a split
  Buffer log_sum_exp_;   // device: their weights
};

}  // namespace tandem
