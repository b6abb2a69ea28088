// The kernels of prefill attention: one translation unit for each data type and head size, so that they
// compile in parallel and nothing of the library that they come from shows elsewhere.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"

namespace tandem {

// One launch. Pointers are device memory. q and out begin at the first row of the first sequence.
struct PrefillLaunch {
  const void* q = nullptr;
  int64_t q_row_stride = 0;      // elements; rows * stride below 2^31
  void* out = nullptr;           // dense rows of num_heads * head_dim; the partial results if split
  float* log_sum_exp = nullptr;  // base 2, [partial row][head]; only if split
  const void* k = nullptr;       // block 0, head 0
  const void* v = nullptr;
  int32_t num_rows = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t block_size = 0;
  int32_t num_sequences = 0;
  float scale = 1.0F;
  int32_t window_left = -1;  // keys before its own that a row sees; -1: all

  // The plan.
  const int32_t* row_indptr = nullptr;         // [sequences + 1]
  const int32_t* block_indptr = nullptr;       // [sequences + 1]
  const int32_t* block_table = nullptr;        // [block_indptr[sequences]]
  const int32_t* last_block_tokens = nullptr;  // [sequences]
  const int32_t* context_len = nullptr;        // [sequences]
  const int32_t* out_indptr = nullptr;         // [sequences + 1] first row, or first partial row, in out
  const int32_t* item_sequence = nullptr;      // [items]
  const int32_t* item_tile = nullptr;
  const int32_t* item_chunk = nullptr;
  const int32_t* chunk_tokens = nullptr;  // one value; 2^31 - 1 if not split
  int32_t num_items = 0;
  int32_t tile_rows = 0;  // 16, 64 or 128 (head_dim 256: 16 or 64) rows of q times heads of a group
  bool split = false;
};

// Enqueues one kernel, without programmatic launch: it reads its plan before it waits.
void LaunchPrefillH64Bf16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchPrefillH64Fp16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchPrefillH128Bf16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchPrefillH128Fp16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchPrefillH256Bf16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchPrefillH256Fp16(CudaStream& stream, const PrefillLaunch& launch);

// FA3, only in builds with TANDEM_FLASH_ATTENTION3, compute capability 9.0: no window, no split, tiles of 128
// rows of one head. Of the plan it reads row_indptr, block_indptr, block_table, context_len, item_sequence,
// item_tile.
void LaunchLongPrefillH128Bf16(CudaStream& stream, const PrefillLaunch& launch);
void LaunchLongPrefillH128Fp16(CudaStream& stream, const PrefillLaunch& launch);

}  // namespace tandem
