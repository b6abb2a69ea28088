// What the weights of shards do together, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/decoder_weights.h"
#include "model/shard_slices.h"
#include "model/weight_product_testing.h"

namespace tandem {

// Whether layer 0 and the lm_head of the shards, by rank, do what those of the whole do: rows are the same,
// bit for bit, and products of parts of the columns add up.
inline void ExpectShardsAreTheWhole(const ModelConfig& config, const DecoderWeights& whole,
                                    std::span<const DecoderWeights> shards, Ops* ops, Stream* stream) {
  const LayerWeights& layer = whole.layers[0];
  const std::vector<float> qkv = WeightProduct(ops, stream, *layer.qkv);
  const std::vector<float> gate_up = WeightProduct(ops, stream, *layer.gate_up);
  const std::vector<float> head = WeightProduct(ops, stream, *whole.lm_head);
  std::vector<float> output(static_cast<size_t>(config.hidden_size));
  std::vector<float> down(static_cast<size_t>(config.hidden_size));
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const ShardSlices slices =
        SlicesOf(config, {.rank = static_cast<int>(rank), .size = static_cast<int>(shards.size())});
    const LayerWeights& part = shards[rank].layers[0];
    const auto expect_rows = [&](const std::vector<float>& all, const std::vector<Slice>& rows,
                                 const LinearWeight& weight) {
      const std::vector<float> found = WeightProduct(ops, stream, weight);
      size_t at = 0;
      for (const Slice& slice : rows) {
        for (int64_t row = slice.begin; row < slice.end(); ++row)
          ASSERT_EQ(found.at(at++), all.at(static_cast<size_t>(row))) << "row " << row << " of rank " << rank;
      }
      EXPECT_EQ(at, found.size());
    };
    const auto behind = [](Slice slice, int64_t rows) { return Slice{slice.begin + rows, slice.count}; };
    const Slice kv = slices.kv_heads.Of(config.head_dim);
    expect_rows(qkv,
                {slices.heads.Of(config.head_dim), behind(kv, config.q_width()),
                 behind(kv, config.q_width() + config.kv_width())},
                *part.qkv);
    expect_rows(gate_up, {slices.mlp, behind(slices.mlp, config.intermediate_size)}, *part.gate_up);
    expect_rows(head, {slices.vocab}, *shards[rank].lm_head);
    const auto add = [&](const LinearWeight& weight, int64_t first_column, std::vector<float>* sum) {
      const std::vector<float> found = WeightProduct(ops, stream, weight, first_column);
      for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += found.at(i);
    };
    add(*part.output, slices.heads.begin * config.head_dim, &output);
    add(*part.down, slices.mlp.begin, &down);
  }
  const auto expect_sum = [](const std::vector<float>& all, const std::vector<float>& sum) {
    float largest = 0;
    for (const float value : all) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(sum[i], all[i], 1e-5F * largest) << i;
  };
  expect_sum(WeightProduct(ops, stream, *layer.output), output);
  expect_sum(WeightProduct(ops, stream, *layer.down), down);
}

}  // namespace tandem
