#include "model/shard_slices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/param_error.h"

namespace tandem {
namespace {

// For messages: more GPUs than a host has.
constexpr int kMostShardsNamed = 64;

// What cannot be cut, with its number; empty if all can.
struct Obstacle {
  std::string_view what;
  int64_t number = 0;
};

Obstacle FindObstacle(const ModelConfig& config, int64_t num_shards) {
  if (config.num_heads % num_shards != 0) return {"attention heads", config.num_heads};
  const int64_t kv_heads = config.num_kv_heads;
  if (kv_heads % num_shards != 0 && num_shards % kv_heads != 0) return {"KV heads", kv_heads};
  if (config.intermediate_size % num_shards != 0) return {"MLP columns", config.intermediate_size};
  return {};
}

Slice EvenSlice(int64_t total, const Shard& shard) {
  const int64_t begin = total * shard.rank / shard.size;
  return {begin, total * (shard.rank + 1) / shard.size - begin};
}

}  // namespace

Status CheckShards(const ModelConfig& config, int64_t num_shards) {
  if (num_shards < 1) {
    return MakeParamError(ErrorCode::kInvalidArgument, "tensor-parallel-size",
                          "tensor-parallel-size {} is less than 1", num_shards);
  }
  const Obstacle obstacle = FindObstacle(config, num_shards);
  if (obstacle.what.empty()) return {};
  return MakeParamError(ErrorCode::kInvalidArgument, "tensor-parallel-size",
                        "the model's {} {} cannot be cut into {} shards; tensor-parallel-size may be {}",
                        obstacle.number, obstacle.what, num_shards,
                        fmt::join(ShardCountsOf(config, kMostShardsNamed), ", "));
}

std::vector<int> ShardCountsOf(const ModelConfig& config, int most) {
  std::vector<int> counts;
  for (int count = 1; count <= most; ++count) {
    if (FindObstacle(config, count).what.empty()) counts.push_back(count);
  }
  return counts;
}

ShardSlices SlicesOf(const ModelConfig& config, const Shard& shard) {
  TANDEM_CHECK(shard.rank >= 0 && shard.rank < shard.size && FindObstacle(config, shard.size).what.empty(),
               "shard {} of {} of a model of {} heads, {} KV heads and {} MLP columns", shard.rank,
               shard.size, config.num_heads, config.num_kv_heads, config.intermediate_size);
  ShardSlices slices = {.heads = EvenSlice(config.num_heads, shard),
                        .kv_heads = EvenSlice(config.num_kv_heads, shard),
                        .mlp = EvenSlice(config.intermediate_size, shard),
                        .vocab = EvenSlice(config.vocab_size, shard)};
  slices.kv_heads.count = std::max<int64_t>(1, slices.kv_heads.count);
  return slices;
}

ModelConfig ConfigOf(const ModelConfig& config, const Shard& shard) {
  const ShardSlices slices = SlicesOf(config, shard);
  ModelConfig part = config;
  part.num_heads = slices.heads.count;
  part.num_kv_heads = slices.kv_heads.count;
  part.intermediate_size = slices.mlp.count;
  return part;
}

}  // namespace tandem
