// Copies of KV blocks between the gpu tier and the cpu tier. Numbers are row-major in the gpu tier and in the
// order of the CPU's kernels (cpu_attention/kv_block.h) in the cpu tier, codes (int8, fp8) in that order in
// both. Kernels convert between GPU memory and staging memory on the GPU; the copy engine moves
// whole runs of blocks between staging and pinned memory.
//
//   gpu tier   cpu tier   kernels
//   numbers    numbers    order
//   codes      the same   none: blocks are gathered as they are
//   numbers    codes      numbers <-> codes
//   codes      numbers    codes <-> numbers, row-major, in a part of the staging memory of their own; order
//   codes      others     codes <-> numbers of fp32 in that part <-> codes
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/cuda_target.h"
#include "device/device.h"
#include "ops/kv_copy.h"

namespace tandem {

// Passed to the kernel by value: no host memory has to outlive the call.
struct KvConversion {
  static constexpr int kMaxBlocks = 512;

  void* gpu = nullptr;      // [block][kv head]{K, V}, each row-major [token][d]
  void* staging = nullptr;  // [part][i][kv head of the part]{K, V} in the CPU's order, i < num_blocks
  int num_blocks = 0;
  int num_kv_heads = 0;
  int heads_per_part = 0;
  int block_size = 0;
  int tile_tokens = 0;  // KvTileTokens: 32 or 16
  int row_units = 0;    // 16 bytes each: head_dim elements
  int32_t gpu_blocks[kMaxBlocks] = {};
};

// Few: the copy engine behind the kernels moves some 50 GB/s, and the SMs belong to the model.
inline int MaxConversionCtas(const CudaTarget& target) {
  constexpr int kMaxCtas = 64;
  constexpr int kMaxCtasPerSm = 4;
  return std::min(kMaxCtas, kMaxCtasPerSm * target.num_sms);
}

// to_cpu: from gpu to staging, else back.
void LaunchKvConversion(CudaStream& stream, const KvConversion& conversion, DType dtype, bool to_cpu);

// One thread at a time. Made for one copy stream, or one for each direction: calls of one direction share
// staging memory, so on different streams they wait for each other.
class KvCopier {
 public:
  // Of each direction: a call that needs more runs in pieces. A block of one layer must fit.
  static constexpr size_t kStagingBytes = size_t{8} << 20;

  // Takes the staging memory. device outlives the copier.
  explicit KvCopier(Device* device);

  // args are those of CheckCopyKv; numbers are of one type.
  CopyKvCount Copy(CudaStream& stream, const CopyKvArgs& args);

 private:
  class Conversion;
  struct Direction {
    Buffer staging;
    std::unique_ptr<Event> done;  // the latest call's use of it
  };

  Direction to_cpu_;
  Direction from_cpu_;
};

}  // namespace tandem
