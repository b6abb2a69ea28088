// Attention of prefill chunks over the paged KV cache of the gpu tier, through FlashInfer's kernels: FA2
// everywhere, FA3 (TANDEM_FLASH_ATTENTION3) on compute capability 9.0 for many rows without a window.
//
// The kernels read numbers of 16 bits. Of a cache of codes a kernel writes those of the
// contexts, block after block, into memory of the plan before them: one layer of as many sequences as fit
// there at a time, a pass. That reads a byte and writes two for each number, which the kernels then read.
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
// same, or codes.
class PrefillAttention {
 public:
  // rows: of q and out. bf16 (compute capability 8.0 on) and fp16 (7.5 on) with a cache of the same type or
  // of codes, head_dim 64, 128 and 256, blocks of 32, any group.
  static bool Supports(const KvShape& kv, DType rows, int64_t num_heads, const CudaTarget& target);
  // What runs, for the log: "FA2" or "FA2, FA3 from 512 rows on".
  static std::string Description(const KvShape& kv, DType rows, const CudaTarget& target);
  // Device memory for numbers of codes: those of capacity.max_context tokens of one layer. 0 with other
  // caches.
  static size_t StagedBytes(const AttentionCapacity& capacity, DType rows);
  // CHECKs Supports. device: of the cuda backend, outlives the plan. long_kernel: FA3, where it can run.
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<PrefillAttention>> Create(Device* device, const AttentionCapacity& capacity,
                                                          DType rows, const CudaTarget& target,
                                                          bool long_kernel = true);

  // The rows of a sequence follow those of the one before it; the first may begin anywhere. kv, num_heads and
  // sliding_window (as in AttentionArgs) are those of every Run. What ran with the plan before the last must
  // have ended.
  void Plan(CudaStream& stream, std::span<const AttentionSequence> sequences, const KvShape& kv,
            int64_t num_heads, int64_t sliding_window);
  // Only the planned rows of q are read and of out written. q: rows aligned to 16 bytes, any stride; out:
  // dense rows. args.plan is not looked at. The result of a row depends on the batch only through roundings.
  void Run(CudaStream& stream, const AttentionArgs& args) const;

 private:
  // Sequences whose numbers are there together; all of them where there are no codes.
  struct Pass {
    int64_t num_sequences = 0;
    int64_t num_blocks = 0;
    int64_t ints_begin = 0;  // of its plan
    PrefillPlan plan;
  };

  PrefillAttention(const AttentionCapacity& capacity, DType rows, const PrefillShape& shape);
  std::vector<Pass> CutIntoPasses(std::span<const AttentionSequence> sequences) const;
  void CheckArgs(const AttentionArgs& args) const;
  void StageNumbers(CudaStream& stream, const AttentionArgs& args, const Pass& pass) const;
  void RunPass(CudaStream& stream, const AttentionArgs& args, const Pass& pass) const;

  AttentionCapacity capacity_;
  DType rows_;
  PrefillShape shape_;
  int64_t staged_blocks_ = 0;  // 0: no codes
  std::vector<Pass> passes_;
  int64_t staged_table_ = 0;  // in ints_: the block table of what is staged
  StagingPair staging_;       // the plans' integers
  Buffer ints_;               // device: the same
  Buffer partial_;            // device: partial results of a split
  Buffer log_sum_exp_;        // device: their weights
  Buffer staged_;             // device: numbers of a pass, one layer
};

}  // namespace tandem
