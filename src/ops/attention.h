// Attention over a paged KV cache: prefill chunks and decodes of many sequences in one call.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kv_layout.h"
#include "base/matrix_view.h"

namespace tandem {

struct AttentionSequence {
  int64_t row_begin = 0;  // its rows of q and out are [row_begin, row_begin + num_rows)
  int64_t num_rows = 1;   // 1 for a decode, the chunk's length for a prefill
  int64_t context_len =
      0;  // tokens in the cache, these rows included; row i sees tokens <= context_len - num_rows + i
  std::vector<int32_t> block_table;  // ceil(context_len / block_size) block numbers
};

// What is the same for every layer of an iteration.
struct AttentionBatch {
  std::vector<AttentionSequence> sequences;
  int64_t num_rows = 0;
};

// What a plan must have room for.
struct AttentionCapacity {
  int64_t max_rows = 0;
  int64_t max_sequences = 0;
  int64_t max_blocks = 0;  // sum of the lengths of the block tables
  // Tokens of the longest sequence; 0: as many as the blocks hold.
  int64_t max_context = 0;
  KvShape kv;
  // Of q and out with a cache of codes; others have their own.
  DType coded_rows = DType::kF32;
  int64_t num_heads = 0;
  int64_t sliding_window = 0;  // of all calls with this plan
};

// Backend's preparation of a batch (work split, device copies of tables), renewed once an iteration and used
// by every layer. Its device memory stays where it is, so that a captured graph runs with whatever batch the
// plan holds at the time.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

// out[rows, num_heads * head_dim] = softmax(scale * q K^T, causal, window) V.
//
// q and out: fp32 or the cache's type; with codes any float type (cuda backend: the plan's, or fp32). KV of
// all context tokens is already appended. Scores and accumulation in fp32. On the host backend a row's result
// depends on that row's q and its context only: the order of additions is a function of the position, not of
// chunking, batch or number of threads.
struct AttentionArgs {
  MatrixView q;
  MatrixView out;
  KvLayerView kv;
  int64_t num_heads = 0;
  float scale = 1.0F;
  int64_t sliding_window = 0;  // keys a row sees, its own included; 0: all
  const AttentionPlan* plan = nullptr;
};

}  // namespace tandem
