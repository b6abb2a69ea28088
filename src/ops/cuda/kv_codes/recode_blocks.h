// Blocks of codes (in the order of cpu_attention/kv_block.h) from and to blocks of numbers.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/kv_codes/coded_heads.h"

namespace tandem {

// Passed to kernels by value: no host memory has to outlive the call. Of the two sides one is listed: block i
// is the one whose number stands in the list. The other is staged: [part][i][kv head of the part], i <
// num_blocks.
struct KvRecoding {
  static constexpr int kMaxBlocks = 512;

  void* numbers = nullptr;  // a head of a block: K row-major [token][d], V the same; aligned to 16 bytes
  DType dtype = DType::kF32;
  void* codes = nullptr;  // aligned to 16 bytes
  CodedHeads heads;
  bool codes_are_listed = false;
  int heads_per_part = 0;  // of the staged side; num_kv_heads: one part
  int num_blocks = 0;
  // Device memory, instead of `blocks`, of any length.
  const int32_t* device_blocks = nullptr;
  int32_t blocks[kMaxBlocks] = {};
};

// max_ctas: how much of the GPU it may take.
void LaunchNumbersToCodes(CudaStream& stream, const KvRecoding& recoding, int max_ctas);
void LaunchCodesToNumbers(CudaStream& stream, const KvRecoding& recoding, int max_ctas);

// Codes as they are, of blocks of the listed side to the staged one or back. numbers and dtype do not matter.
void LaunchGatherCodes(CudaStream& stream, const KvRecoding& recoding, void* staging, bool to_staging,
                       int max_ctas);

// Where block i, kv head h of the staged side lies, in heads.
constexpr int64_t StagedHead(int num_blocks, int num_kv_heads, int heads_per_part, int block, int head) {
  const int first_head = head / heads_per_part * heads_per_part;
  const int left = num_kv_heads - first_head;
  const int part_heads = heads_per_part < left ? heads_per_part : left;
  return static_cast<int64_t>(first_head) * num_blocks + static_cast<int64_t>(block) * part_heads + head -
         first_head;
}

}  // namespace tandem
