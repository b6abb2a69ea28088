// Shape of the paged KV cache. The order of elements inside a block belongs to the backend: only the ops that
// append and attend know it; everyone else moves whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tandem {

struct KvShape {
  DType dtype = DType::kF32;
  int64_t block_size = 32;  // tokens a block
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  // Bytes of one block of one layer: K and V of all its heads.
  size_t BlockBytes() const {
    return 2 * static_cast<size_t>(block_size * num_kv_heads * head_dim) * DTypeSize(dtype);
  }
};

// One layer of one tier: block b occupies bytes [b * shape.BlockBytes(), ...), as [kv head]{K, V}.
struct KvLayerView {
  void* data = nullptr;
  KvShape shape;
  int64_t num_blocks = 0;
};

}  // namespace tandem
