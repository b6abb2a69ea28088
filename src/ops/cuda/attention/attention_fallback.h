// Paged attention for the shapes that neither the decode kernel nor FlashInfer has. Correct, not fast.
#pragma once

#include <cstdint>

#include "base/kv_layout.h"
#include "device/cuda/cuda_stream.h"
#include "ops/attention.h"

namespace tandem {

// fp32, bf16 and fp16 caches, head_dim a multiple of 8 up to 256, any group and block size; int8 caches,
// head_dim a multiple of 16 up to 256, block size a multiple of 16.
bool AttentionFallbackSupports(const KvShape& kv, int64_t num_heads);

// Which sequences of a plan: the first PlanHeader::num_decodes, the others, or both.
struct FallbackRows {
  bool decodes = false;
  bool prefills = false;
};

// plan: words of attention_plan_layout.h made for num_ctas CTAs of the decode kernel. q and out: fp32 or the
// cache's dtype, each; with int8 fp32 or one other type. The launch depends on nothing in plan.
void AttentionFallback(CudaStream& stream, const AttentionArgs& args, const int32_t* plan, int num_ctas,
                       FallbackRows rows);

}  // namespace tandem
