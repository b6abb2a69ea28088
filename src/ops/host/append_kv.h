// Writes one token's K and V into its block.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kv_layout.h"

namespace tandem {

// keys and values: [num_kv_heads * head_dim] of one row, fp32 or bf16. slot: block * block_size + offset;
// negative: nothing is written.
void AppendToken(const KvLayerView& kv, int32_t slot, const void* keys, const void* values, DType dtype);

}  // namespace tandem
