// Attention kernels by instruction set. Pure functions of one thread.
//
// Keys are processed in tiles (kv_block.h) with a running maximum, tiles in partitions of kPartitionTokens.
// Each partition starts from nothing and partitions are merged in order. Both borders lie at multiples of
// their size in absolute positions, so the order of additions for a row depends on its position and window
// only.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/host/cpu_isa.h"

namespace tandem {

constexpr int64_t kPartitionTokens = 256;
// Rows of one sequence that share each read of K and V.
constexpr int64_t kRowsPerGroup = 8;

// Up to kRowsPerGroup consecutive rows of a sequence, all query heads of one kv head.
struct AttentionRows {
  MatrixView q;    // the rows, columns of the query heads: [num_rows, group_size * head_dim]
  MatrixView out;  // likewise
  int64_t num_rows = 0;
  int64_t group_size = 1;      // query heads of the kv head
  int64_t first_position = 0;  // of row 0
  int64_t window = 0;
  float scale = 1.0F;
  const int32_t* block_table = nullptr;
  KvLayerView kv;
  int64_t kv_head = 0;

  int64_t num_queries() const { return num_rows * group_size; }
  // First key that any of the rows sees, and the end of the keys of the last.
  int64_t begin_key() const {
    return window > 0 && first_position - window + 1 > 0 ? first_position - window + 1 : 0;
  }
  int64_t end_key() const { return first_position + num_rows; }
};

// Floats of a state: for every query the maximum and the sum of weights, then the weighted sums of V.
constexpr int64_t AttentionStateSize(int64_t num_queries, int64_t head_dim) {
  return num_queries * (head_dim + 2);
}
// Floats of scratch for the same.
constexpr int64_t AttentionScratchSize(int64_t num_queries, int64_t head_dim) {
  return num_queries * (2 * head_dim + 2 + 64) + 64;
}

struct AttentionKernels {
  // state = the result of partitions [first, end), merged in order.
  void (*run)(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* state,
              float* scratch) = nullptr;
  // state = state merged with that of the partition after it.
  void (*merge)(float* state, const float* next, int64_t num_queries, int64_t head_dim) = nullptr;
  // Writes rows.out.
  void (*finish)(const AttentionRows& rows, const float* state) = nullptr;
};

const AttentionKernels& AttentionKernelsPortable();
#if defined(__x86_64__)
const AttentionKernels& AttentionKernelsAvx2();
const AttentionKernels& AttentionKernelsAvx512();
const AttentionKernels& AttentionKernelsAvx512Bf16();
#endif
const AttentionKernels& AttentionKernelsFor(CpuIsa isa);

}  // namespace tandem
