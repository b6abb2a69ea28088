// Copies of KV blocks between the tiers.
#pragma once

#include <cstdint>
#include <span>

#include "base/kv_layout.h"

namespace tandem {

// Blocks of one layer between a view in device memory (the gpu tier, or a buffer of the same form) and one in
// pinned host memory (the cpu tier): gpu_blocks[i] to or from cpu_blocks[i]. Elements arrive in the order of
// the destination's backend, in host memory that of cpu_attention/kv_block.h.
//
// Both views have the same shape. Where their formats differ values are converted: that takes a kernel, and
// is for backends that have one (the host backend has). gpu is one part, cpu as many as it has. No block is
// written twice in a call. The spans are read during the call only, the memory until the stream has run the
// op.
//
// What is fast: neighbouring blocks (consecutive numbers in the list), as they move in one piece.
struct CopyKvArgs {
  KvLayerView gpu;
  KvLayerView cpu;
  std::span<const int32_t> gpu_blocks;
  std::span<const int32_t> cpu_blocks;
  bool to_cpu = true;
};

// What was enqueued: transfers and the bytes of KV in them, in the cpu tier's format.
struct CopyKvCount {
  int64_t num_copies = 0;
  int64_t num_bytes = 0;

  CopyKvCount& operator+=(const CopyKvCount& other) {
    num_copies += other.num_copies;
    num_bytes += other.num_bytes;
    return *this;
  }
};

// Aborts unless the views and lists fit each other. Formats may differ.
void CheckCopyKv(const CopyKvArgs& args);

// How the heads of a view are spread.
KvParts PartsOf(const KvLayerView& view);

}  // namespace tandem
