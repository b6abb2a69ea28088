// Writes one token's K and V into its block.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/kv_layout.h"

namespace tandem {

// keys and values: the rows of heads [first_head, first_head + num_heads), [num_heads * head_dim] each, of a
// type that goes with the cache (RowsGoWith); codes are made here (kv_codes.h). slot: block * block_size +
// offset; negative: nothing is written.
void AppendToken(const KvLayerView& kv, int32_t slot, int64_t first_head, int64_t num_heads, const void* keys,
                 const void* values, DType dtype);

// The reverse, as fp32: what the cache holds of one head of a token. key and value: [head_dim].
void ReadToken(const KvLayerView& kv, int32_t slot, int64_t kv_head, float* key, float* value);

}  // namespace tandem
