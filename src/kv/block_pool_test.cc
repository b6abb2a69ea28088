#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace tandem {
namespace {

int64_t NumRuns(const std::vector<int32_t>& blocks) {
  int64_t runs = blocks.empty() ? 0 : 1;
  for (size_t i = 1; i < blocks.size(); ++i) runs += blocks[i] == blocks[i - 1] + 1 ? 0 : 1;
  return runs;
}

TEST(BlockPoolTest, AllocatesAllOrNothing) {
  BlockPool pool(10);
  std::vector<int32_t> blocks;
  EXPECT_FALSE(pool.Allocate(11, &blocks));
  EXPECT_TRUE(blocks.empty());
  EXPECT_TRUE(pool.Allocate(0, &blocks));
  EXPECT_TRUE(pool.Allocate(10, &blocks));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_FALSE(pool.Allocate(1, &blocks));
  std::vector<int32_t> sorted = blocks;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  pool.Free(blocks);
  EXPECT_EQ(pool.num_free(), 10);
  BlockPool empty(0);
  EXPECT_TRUE(empty.Allocate(0, &blocks));
  EXPECT_FALSE(empty.Allocate(1, &blocks));
}

TEST(BlockPoolTest, GrowthTakesTheNextBlock) {
  BlockPool pool(1000);
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  ASSERT_TRUE(pool.Allocate(5, &a));
  ASSERT_TRUE(pool.Allocate(5, &b));
  // Two sequences that grow in turns do not get in each other's way at once: there is room between them.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool.Allocate(1, &a));
    ASSERT_TRUE(pool.Allocate(1, &b));
  }
  EXPECT_EQ(NumRuns(a), 1);
  EXPECT_EQ(NumRuns(b), 1);
  // A block that comes free behind the last one is the first choice, whatever else there is.
  std::vector<int32_t> rest;
  ASSERT_TRUE(pool.Allocate(pool.num_free(), &rest));
  std::vector<int32_t> freed = {a.back() + 1};
  for (const int32_t block : rest) {
    if (freed.size() < 100 && block > 500) freed.push_back(block);
  }
  pool.Free(freed);
  ASSERT_TRUE(pool.Allocate(1, &a));
  EXPECT_EQ(a.back(), freed.front());
}

TEST(BlockPoolTest, FreedNeighboursJoin) {
  BlockPool pool(100);
  std::vector<int32_t> all;
  ASSERT_TRUE(pool.Allocate(100, &all));
  // One by one and in no order: afterwards one run of 60 is there again.
  std::vector<int32_t> middle(60);
  std::iota(middle.begin(), middle.end(), 20);
  std::shuffle(middle.begin(), middle.end(), std::mt19937(3));
  for (const int32_t block : middle) pool.Free({block});
  std::vector<int32_t> again;
  ASSERT_TRUE(pool.Allocate(60, &again));
  EXPECT_EQ(NumRuns(again), 1);
  EXPECT_EQ(again.front(), 20);
}

TEST(BlockPoolTest, ScarceBlocksAreTakenFromTheRunThatFitsBest) {
  BlockPool pool(1000);
  std::vector<int32_t> all;
  ASSERT_TRUE(pool.Allocate(1000, &all));
  pool.Free({100, 101, 102, 103, 104, 105, 106, 107});
  pool.Free({200, 201, 202});
  pool.Free({300, 301, 302, 303, 304});
  std::vector<int32_t> three;
  ASSERT_TRUE(pool.Allocate(3, &three));
  EXPECT_EQ(three, (std::vector<int32_t>{200, 201, 202}));
  std::vector<int32_t> four;
  ASSERT_TRUE(pool.Allocate(4, &four));
  EXPECT_EQ(four, (std::vector<int32_t>{300, 301, 302, 303}));
  // More than any run has: the longest first, then what fits best.
  std::vector<int32_t> nine;
  ASSERT_TRUE(pool.Allocate(9, &nine));
  EXPECT_EQ(nine, (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106, 107, 304}));
}

// Sequences of all lengths come, grow and go at 80 % use: a block after its predecessor is the rule.
TEST(BlockPoolTest, RunsStayLongUnderLoad) {
  BlockPool pool(4000);
  std::mt19937 random(11);
  std::vector<std::vector<int32_t>> sequences(100);
  int64_t num_blocks = 0;
  int64_t num_runs = 0;
  for (int step = 0; step < 100'000; ++step) {
    std::vector<int32_t>& blocks = sequences[random() % sequences.size()];
    if (blocks.empty()) {
      const auto wanted = static_cast<int64_t>(8 + random() % 48);
      if (pool.num_free() - wanted >= 800) {
        ASSERT_TRUE(pool.Allocate(wanted, &blocks));
      }
    } else if (random() % 8 == 0) {
      num_blocks += static_cast<int64_t>(blocks.size());
      num_runs += NumRuns(blocks);
      pool.Free(blocks);
      blocks.clear();
    } else if (pool.num_free() > 800) {
      ASSERT_TRUE(pool.Allocate(1, &blocks));
    }
  }
  ASSERT_GT(num_runs, 1000);
  EXPECT_GT(num_blocks, 8 * num_runs);
}

TEST(BlockPoolTest, SharedBlocksComeFreeWithTheLastReference) {
  BlockPool pool(10);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(6, &blocks));
  pool.Share(std::span(blocks).subspan(1, 2));
  EXPECT_EQ(pool.references(blocks[0]), 1);
  EXPECT_EQ(pool.references(blocks[1]), 2);
  const std::vector<int32_t> shared = {blocks[1], blocks[2]};
  pool.Free(blocks);
  EXPECT_EQ(pool.num_free(), 8);
  // What is free around the shared ones goes to others, those do not.
  std::vector<int32_t> others;
  ASSERT_TRUE(pool.Allocate(8, &others));
  for (const int32_t block : shared) EXPECT_EQ(std::count(others.begin(), others.end(), block), 0);
  pool.Free(others);
  pool.Free(shared);
  EXPECT_EQ(pool.num_free(), 10);
  std::vector<int32_t> all;
  ASSERT_TRUE(pool.Allocate(10, &all));
  EXPECT_EQ(NumRuns(all), 1);
}

TEST(BlockPoolDeathTest, FreeingTwiceIsABrokenInvariant) {
  BlockPool pool(8);
  std::vector<int32_t> blocks;
  ASSERT_TRUE(pool.Allocate(3, &blocks));
  pool.Free(blocks);
  EXPECT_DEATH(pool.Free(blocks), "not in use");
  EXPECT_DEATH(pool.Share(blocks), "not in use");
  EXPECT_DEATH(pool.Free({8}), "not in use");
  EXPECT_DEATH(pool.Free({-1}), "not in use");
}

}  // namespace
}  // namespace tandem
