#include "model/shard_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load/dummy_models.h"

namespace tandem {
namespace {

using testing::ElementsAre;

TEST(ShardSlicesTest, PartsFollowEachOtherAndAreTheWhole) {
  ModelConfig config = *DummyModelConfig("smollm2-135m");
  config.vocab_size = 49154;
  ShardSlices end;
  for (int rank = 0; rank < 3; ++rank) {
    const ShardSlices slices = SlicesOf(config, {.rank = rank, .size = 3});
    EXPECT_EQ(slices.heads.begin, end.heads.end());
    EXPECT_EQ(slices.kv_heads.begin, end.kv_heads.end());
    EXPECT_EQ(slices.mlp.begin, end.mlp.end());
    EXPECT_EQ(slices.vocab.begin, end.vocab.end());
    const ModelConfig part = ConfigOf(config, {.rank = rank, .size = 3});
    EXPECT_EQ(part.num_heads, 3);
    EXPECT_EQ(part.num_kv_heads, 1);
    EXPECT_EQ(part.intermediate_size, 512);
    EXPECT_EQ(part.vocab_size, config.vocab_size);
    end = slices;
  }
  EXPECT_EQ(end.heads.end(), 9);
  EXPECT_EQ(end.kv_heads.end(), 3);
  EXPECT_EQ(end.mlp.end(), 1536);
  EXPECT_EQ(end.vocab.end(), 49154);
}

TEST(ShardSlicesTest, MoreShardsThanKvHeadsShareThem) {
  // 4 heads, 2 KV heads.
  const ModelConfig config = *DummyModelConfig("tiny");
  for (int rank = 0; rank < 4; ++rank) {
    const ShardSlices slices = SlicesOf(config, {.rank = rank, .size = 4});
    EXPECT_EQ(slices.heads, (Slice{rank, 1}));
    EXPECT_EQ(slices.kv_heads, (Slice{rank / 2, 1}));
  }
}

TEST(ShardSlicesTest, TheWholeModelIsOneShard) {
  const ModelConfig config = *DummyModelConfig("llama-3.1-8b");
  const ModelConfig whole = ConfigOf(config, {});
  EXPECT_EQ(whole.num_heads, config.num_heads);
  EXPECT_EQ(whole.num_kv_heads, config.num_kv_heads);
  EXPECT_EQ(SlicesOf(config, {}).vocab, (Slice{0, config.vocab_size}));
}

TEST(ShardSlicesTest, WhatCannotBeCutIsNamedWithWhatCan) {
  const ModelConfig config = *DummyModelConfig("smollm2-135m");
  EXPECT_TRUE(CheckShards(config, 3).ok());
  const Status two = CheckShards(config, 2);
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().param, "tensor-parallel-size");
  EXPECT_EQ(two.error().message,
            "the model's 9 attention heads cannot be cut into 2 shards; tensor-parallel-size may be 1, 3");
  EXPECT_EQ(CheckShards(config, 0).error().message, "tensor-parallel-size 0 is less than 1");
  ModelConfig odd = *DummyModelConfig("tiny");
  odd.num_heads = 12;
  odd.num_kv_heads = 4;
  EXPECT_THAT(CheckShards(odd, 6).error().message, testing::StartsWith("the model's 4 KV heads cannot"));
  odd.intermediate_size = 511;
  EXPECT_THAT(CheckShards(odd, 2).error().message, testing::StartsWith("the model's 511 MLP columns cannot"));
}

TEST(ShardSlicesTest, CountsOfPublishedModels) {
  EXPECT_THAT(ShardCountsOf(*DummyModelConfig("llama-3.1-70b"), 16), ElementsAre(1, 2, 4, 8, 16));
  EXPECT_THAT(ShardCountsOf(*DummyModelConfig("qwen2.5-7b"), 32), ElementsAre(1, 2, 4));
}

}  // namespace
}  // namespace tandem
