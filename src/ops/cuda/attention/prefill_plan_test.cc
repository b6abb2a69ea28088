#include "ops/cuda/attention/prefill_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/cuda/attention/prefill_test_batch.h"

namespace tandem {
namespace {

// Every tile and chunk once, all keys that a row sees inside its tile's chunks, within the promised bounds.
void CheckPlan(const PrefillShape& shape, const std::vector<Lengths>& lengths) {
  const auto sequences = MakeSequences(lengths, 3);
  const AttentionCapacity capacity = CapacityOf(sequences, {}, shape.num_heads);
  std::vector<int32_t> ints(static_cast<size_t>(MaxPrefillPlanInts(shape, capacity)), -1);
  const PrefillPlan plan = PlanPrefill(shape, sequences, ints);
  const auto at = [&](int64_t array, int64_t index) {
    return int64_t{ints.at(static_cast<size_t>(array + index))};
  };
  ASSERT_EQ(plan.first_row, 3);
  ASSERT_EQ(plan.num_rows, capacity.max_rows);
  ASSERT_LE(plan.num_ints, static_cast<int64_t>(ints.size()));
  ASSERT_LE(plan.num_partial_rows * shape.num_heads, MaxPartialHeads(shape));
  if (plan.split) {
    ASSERT_LE(plan.num_items * shape.num_kv_heads, 2 * shape.num_sms);
  }

  std::map<std::tuple<int64_t, int64_t, int64_t>, int> items;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    ++items[{at(plan.item_sequence, i), at(plan.item_tile, i), at(plan.item_chunk, i)}];
  }
  std::map<std::pair<int64_t, int64_t>, int> long_items;
  for (int64_t i = 0; i < plan.num_long_items; ++i) {
    ++long_items[{at(plan.long_item_sequence, i), at(plan.long_item_tile, i)}];
  }
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t chunk_tokens = at(plan.chunk_tokens, 0);
  size_t num_items = 0;
  size_t num_long_items = 0;
  int64_t merged = 0;
  for (int64_t s = 0; s < plan.num_sequences; ++s) {
    const AttentionSequence& sequence = sequences[static_cast<size_t>(s)];
    const int64_t num_blocks = at(plan.block_indptr, s + 1) - at(plan.block_indptr, s);
    ASSERT_EQ((num_blocks - 1) * kBlockSize + at(plan.last_block_tokens, s), sequence.context_len);
    ASSERT_EQ(at(plan.context_len, s), sequence.context_len);
    ASSERT_EQ(at(plan.row_indptr, s), sequence.row_begin - 3);
    for (int64_t b = 0; b < num_blocks; ++b) {
      ASSERT_EQ(at(plan.block_table, at(plan.block_indptr, s) + b),
                sequence.block_table[static_cast<size_t>(b)]);
    }
    if (shape.long_rows > 0 && shape.sliding_window == 0 && sequence.num_rows >= shape.long_rows) {
      const int64_t num_tiles = (sequence.num_rows + shape.long_tile_rows - 1) / shape.long_tile_rows;
      for (int64_t tile = 0; tile < num_tiles; ++tile) ASSERT_EQ((long_items[{s, tile}]), 1);
      num_long_items += static_cast<size_t>(num_tiles);
      continue;
    }
    const int64_t num_tiles = (sequence.num_rows * group + plan.tile_rows - 1) / plan.tile_rows;
    int64_t num_chunks = 0;
    while (items.count({s, 0, num_chunks}) > 0) ++num_chunks;
    num_items += static_cast<size_t>(num_tiles * num_chunks);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) ASSERT_EQ((items[{s, tile, chunk}]), 1);
      const int64_t first = tile * plan.tile_rows / group;
      const int64_t last = std::min(sequence.num_rows, ((tile + 1) * plan.tile_rows + group - 1) / group) - 1;
      const int64_t before = sequence.context_len - sequence.num_rows;
      const int64_t first_key =
          shape.sliding_window > 0 ? std::max<int64_t>(0, before + first - shape.sliding_window + 1) : 0;
      ASSERT_GE(first_key + num_chunks * chunk_tokens, before + last + 1)
          << "sequence " << s << " tile " << tile;
    }
    if (!plan.split) {
      ASSERT_EQ(num_chunks, 1);
      ASSERT_EQ(at(plan.out_indptr, s), at(plan.row_indptr, s));
      continue;
    }
    for (int64_t r = 0; r < sequence.num_rows; ++r, ++merged) {
      ASSERT_EQ(at(plan.merge_row, merged), at(plan.row_indptr, s) + r);
      ASSERT_EQ(at(plan.merge_indptr, merged), at(plan.out_indptr, s) + r * num_chunks);
      ASSERT_EQ(at(plan.merge_indptr, merged + 1) - at(plan.merge_indptr, merged), num_chunks);
    }
  }
  ASSERT_EQ(items.size(), num_items);
  ASSERT_EQ(long_items.size(), num_long_items);
  ASSERT_EQ(merged, plan.num_merged_rows);
}

PrefillShape Llama(int64_t num_sms) {
  PrefillShape shape;
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.num_sms = num_sms;
  return shape;
}

PrefillPlan PlanOf(const PrefillShape& shape, const std::vector<Lengths>& lengths) {
  const auto sequences = MakeSequences(lengths, 0);
  std::vector<int32_t> ints(
      static_cast<size_t>(MaxPrefillPlanInts(shape, CapacityOf(sequences, {}, shape.num_heads))));
  return PlanPrefill(shape, sequences, ints);
}

TEST(PrefillPlanTest, RandomBatchesAreCovered) {
  std::mt19937 random(5);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  for (int trial = 0; trial < 400; ++trial) {
    PrefillShape shape;
    shape.num_kv_heads = 1 + below(9);
    shape.num_heads = shape.num_kv_heads * (1 + below(9));
    shape.num_sms = 1 + below(trial % 2 == 0 ? 150 : 2000);
    shape.small_tile_rows = below(4) == 0 ? 64 : 16;
    shape.large_tile_rows = below(3) == 0 ? 64 : 128;
    shape.sliding_window = below(2) * below(1500);
    shape.long_rows = below(2) * 512;
    shape.long_tile_rows = below(2) == 0 ? 128 : 192;
    std::vector<Lengths> lengths;
    for (int64_t count = 1 + below(12); count > 0; --count) {
      const int64_t rows = below(3) == 0 ? 1 : 1 + below(below(2) == 0 ? 40 : 1300);
      lengths.push_back({rows, rows + below(2) * below(4000)});
    }
    ASSERT_NO_FATAL_FAILURE(CheckPlan(shape, lengths)) << "trial " << trial;
  }
}

TEST(PrefillPlanTest, TileSizeFollowsTheRows) {
  EXPECT_EQ(PlanOf(Llama(132), {{1, 900}, {1, 30}}).tile_rows, 16);
  EXPECT_EQ(PlanOf(Llama(132), {{12, 900}}).tile_rows, 64);
  EXPECT_EQ(PlanOf(Llama(132), {{2048, 2048}}).tile_rows, 128);
  EXPECT_EQ(PlanOf(Llama(132), {{2048, 2048}, {1, 100}, {1, 100}}).tile_rows, 128);
}

TEST(PrefillPlanTest, SplitsOnlyWhatLeavesSmsIdle) {
  EXPECT_FALSE(PlanOf(Llama(132), {{512, 512}}).split);
  EXPECT_FALSE(PlanOf(Llama(132), {{2048, 2048}}).split);
  EXPECT_FALSE(PlanOf(Llama(16), {{512, 8192}}).split);
  EXPECT_TRUE(PlanOf(Llama(132), {{512, 8192}}).split);
  EXPECT_TRUE(PlanOf(Llama(132), {{1, 4096}}).split);
  EXPECT_FALSE(PlanOf(Llama(132), {{1, 200}}).split);
}

// A short chunk of a prompt behind many keys: few tiles, each with a long way.
TEST(PrefillPlanTest, SplitsTheKeysOfShortChunks) {
  const auto chunks_of_a_row = [](const PrefillPlan& plan) {
    return plan.split ? plan.num_partial_rows / plan.num_rows : 1;
  };
  EXPECT_EQ(chunks_of_a_row(PlanOf(Llama(132), {{16, 1024}})), 8);
  EXPECT_EQ(chunks_of_a_row(PlanOf(Llama(132), {{128, 1024}})), 4);
  EXPECT_EQ(chunks_of_a_row(PlanOf(Llama(132), {{256, 1024}})), 2);
  // More would put two thread blocks on each SM and take longer.
  EXPECT_EQ(chunks_of_a_row(PlanOf(Llama(132), {{64, 4096}})), 8);
  EXPECT_FALSE(PlanOf(Llama(132), {{512, 1024}}).split);
  EXPECT_EQ(chunks_of_a_row(PlanOf(Llama(16), {{16, 1024}})), 4);
  EXPECT_FALSE(PlanOf(Llama(16), {{128, 1024}}).split);
}

TEST(PrefillPlanTest, LongestTilesFirst) {
  const auto sequences = MakeSequences({{200, 200}, {1000, 1000}}, 0);
  std::vector<int32_t> ints(
      static_cast<size_t>(MaxPrefillPlanInts(Llama(132), CapacityOf(sequences, {}, 32))));
  const PrefillPlan plan = PlanPrefill(Llama(132), sequences, ints);
  EXPECT_EQ(ints[static_cast<size_t>(plan.item_sequence)], 1);
  EXPECT_EQ(ints[static_cast<size_t>(plan.item_tile)], 31);
  EXPECT_EQ(ints[static_cast<size_t>(plan.item_tile + plan.num_items - 1)], 0);
}

}  // namespace
}  // namespace tandem
