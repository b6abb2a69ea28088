// Attention kernels by instruction set: pure functions of one thread over host memory.
//
// Keys are processed in tiles (kv_block.h) with a running maximum, tiles in partitions of kPartitionTokens.
// Each partition starts from nothing and partitions are merged in order. Both borders lie at multiples of
// their size in absolute positions, so the order of additions for a row depends on its position and window
// only: not on the batch, the split of the work or the number of threads.
//
// Several kv heads are walked block by block, so that the memory is read in long pieces: on one machine with
// two cores, 16 KiB pieces in random order came at 75 % of the rate of 128 KiB pieces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kv_layout.h"
#include "base/matrix_view.h"
#include "cpu_attention/attention_fetch.h"
#include "simd/cpu_isa.h"

namespace tandem {

// Up to kRowsPerGroup rows, all query heads of a span of kv heads: consecutive rows of a sequence, or one row
// each of several sequences over partitions that they have in common.
struct AttentionRows {
  MatrixView q;    // the rows, columns of the query heads: [num_rows, num_kv_heads * group_size * head_dim]
  MatrixView out;  // likewise
  // Of several sequences: which rows of q they are, [num_rows]. Only `run_apart`, which does not write out.
  const int32_t* row_numbers = nullptr;
  // Log-sum-exp of the scaled scores of row 0's query heads, [num_kv_heads * group_size], or null.
  // Only where num_rows is 1.
  float* lse = nullptr;
  int64_t num_rows = 0;
  int64_t group_size = 1;      // query heads of a kv head
  int64_t first_position = 0;  // of row 0
  int64_t position_step = 1;   // from a row's position to the next; of several sequences: 0
  int64_t window = 0;          // keys a row sees, its own included; 0: all
  float scale = 1.0F;
  const int32_t* block_table = nullptr;
  DType kv_dtype = DType::kF32;  // of KvFormat::Of
  int64_t block_size = 0;
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;       // of the span; their pieces {K, V} of a block follow each other in memory
  const std::byte* kv = nullptr;  // the span's first head in block 0
  int64_t block_stride_bytes = 0;
  // What this thread will read after these rows (fetched while the last block is computed), or null.
  const std::byte* next_kv = nullptr;
  AttentionFetch fetch;

  [[gnu::always_inline]] int64_t num_queries() const { return num_rows * group_size; }  // of one kv head
  // First key that any of the rows sees, and the end of the keys of the last.
  [[gnu::always_inline]] int64_t begin_key() const {
    return window > 0 && first_position - window + 1 > 0 ? first_position - window + 1 : 0;
  }
  [[gnu::always_inline]] int64_t position(int64_t row) const { return first_position + row * position_step; }
  [[gnu::always_inline]] int64_t end_key() const { return position(num_rows - 1) + 1; }
};

// Fills what rows says of the cache: heads [first_head, first_head + num_heads) of kv, all in one part.
void SetKv(const KvLayerView& kv, int64_t first_head, int64_t num_heads, AttentionRows* rows);

// Floats of the state of one kv head: for every query the maximum (in units of ln 2) and the sum of weights,
// then the weighted sums of V. A span's heads follow each other.
constexpr int64_t AttentionStateSize(int64_t num_queries, int64_t head_dim) {
  return num_queries * (head_dim + 2);
}
// Floats of scratch that `run` and `run_apart` need for num_kv_heads heads of num_queries queries each.
constexpr int64_t AttentionScratchSize(int64_t num_queries, int64_t head_dim, int64_t num_kv_heads) {
  return num_kv_heads * (num_queries * (2 * head_dim + 2 + 16) + AttentionStateSize(num_queries, head_dim)) +
         num_queries * 32 + num_queries + 16;
}

struct AttentionKernels {
  // state = the result of partitions [first, end) of every head of the span, merged in order.
  void (*run)(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* state,
              float* scratch) = nullptr;
  // Each partition of [first, end) and each row apart: states[row] + i * partition_stride = the result of
  // partition first + i, [head]{state of group_size queries}.
  void (*run_apart)(const AttentionRows& rows, int64_t first_partition, int64_t end_partition,
                    float* const* states, int64_t partition_stride, float* scratch) = nullptr;
  // state = state merged with that of the partition after it; one head.
  void (*merge)(float* state, const float* next, int64_t num_queries, int64_t head_dim) = nullptr;
  // Writes rows.out (and rows.lse) from the states of the span's heads.
  void (*finish)(const AttentionRows& rows, const float* state) = nullptr;
  // Sums size_bytes (a multiple of 512) from p: the plainest fast read, to measure memory with.
  float (*read)(const std::byte* p, int64_t size_bytes) = nullptr;
};

const AttentionKernels& AttentionKernelsPortable();
#if defined(__x86_64__)
const AttentionKernels& AttentionKernelsAvx2();
const AttentionKernels& AttentionKernelsAvx512();
const AttentionKernels& AttentionKernelsAvx512Bf16();
const AttentionKernels& AttentionKernelsAvx512Ymm();
const AttentionKernels& AttentionKernelsAmx();
#elif defined(__aarch64__)
const AttentionKernels& AttentionKernelsNeon();
const AttentionKernels& AttentionKernelsNeonDot();
const AttentionKernels& AttentionKernelsNeonBf16();
#endif
const AttentionKernels& AttentionKernelsFor(CpuIsa isa);

}  // namespace tandem
