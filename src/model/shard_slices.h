// How a model is cut into shards, as Megatron does: QKV, gate and up by rows of the weight (columns of the
// product), the output and down projections by columns (their products are summed over the shards), embedding
// and lm_head by vocabulary, the KV cache by KV head. Norms are whole everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/slice.h"
#include "collective/shard.h"
#include "load/model_config.h"

namespace tandem {

// Of a shard.
struct ShardSlices {
  Slice heads;
  Slice kv_heads;  // those that its heads attend over: where there are more shards than KV heads, several
                   // have the same one
  Slice mlp;       // of intermediate_size
  Slice vocab;     // parts of different shards may differ by one
};

// Error: kInvalidArgument (param "tensor-parallel-size") if heads, KV heads or the MLP cannot be cut into so
// many, naming what can.
Status CheckShards(const ModelConfig& config, int64_t num_shards);

// Into how many shards a model can be cut, at most `most`; 1 among them.
std::vector<int> ShardCountsOf(const ModelConfig& config, int most);

// CHECKs that the model can be cut so.
ShardSlices SlicesOf(const ModelConfig& config, const Shard& shard);

// What the shard computes: its heads, KV heads and part of the MLP. The vocabulary is the whole one: logits
// are gathered.
ModelConfig ConfigOf(const ModelConfig& config, const Shard& shard);

}  // namespace tandem
