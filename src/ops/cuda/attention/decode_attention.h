// Decode attention over the paged KV cache: one row of q a sequence, read at the memory's speed.
//
// The cached tokens of all sequences and kv heads are one line of tiles (attention_plan_layout.h) that is cut
// into equal ranges, one a warp of a grid that always fills the GPU. So the launch depends on nothing but the
// shape, and one captured in a graph runs with whatever plan is in memory by then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kv_layout.h"
#include "device/cuda/cuda_stream.h"
#include "ops/attention.h"

namespace tandem {

// rows: of q and out. bf16 and fp16 with a cache of the same type or of codes, on compute
// capability 8.0 and later, blocks of 32 tokens, head_dim 64 and 128 with up to 16 query heads a kv head,
// head_dim 256 with up to 8. On 7.5 of these fp16, head_dim 64 and 128.
bool DecodeAttentionSupports(const KvShape& kv, DType rows, int64_t num_heads, const CudaTarget& target);

// The launch for a supported shape.
struct DecodeLaunch {
  int num_ctas = 0;
  int num_warps = 0;
  bool is_direct = false;  // the kernel of 7.5, without a ring in shared memory
  size_t shared_bytes = 0;
  // Workspace, zero before the first launch and used by one launch at a time.
  size_t partial_bytes = 0;
  size_t counter_bytes = 0;
};
DecodeLaunch PlanDecodeLaunch(const KvShape& kv, int64_t num_heads, const CudaTarget& target);

// Once a process and shape, before the first launch: lets the kernel have its shared memory.
void PrepareDecodeAttention(const KvShape& kv, DType rows, int64_t num_heads, const DecodeLaunch& launch);

// plan: words of attention_plan_layout.h made for launch.num_ctas CTAs and args.sliding_window. q and out
// are of a type that the cache goes with. Equal inputs give equal bits: partial results are merged in the
// order of the tokens. Tokens before a sequence's newest are read before the kernels ahead have ended: they
// must have been there before the plan was.
void DecodeAttention(CudaStream& stream, const AttentionArgs& args, const DecodeLaunch& launch,
                     const int32_t* plan, void* partials, void* counters);

}  // namespace tandem
