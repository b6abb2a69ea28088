#include "engine/shards.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

std::vector<int> ThreadsOfAll(int num_shards, int num_threads, const std::vector<std::vector<int>>& nodes) {
  std::vector<int> of_all;
  for (int rank = 0; rank < num_shards; ++rank) {
    const ShardThreads threads = ThreadsOf({.rank = rank, .size = num_shards}, num_threads, nodes);
    of_all.push_back(threads.num_taken);
    of_all.push_back(threads.num_threads);
  }
  return of_all;
}

// First the core that a shard begins at, then how many it has.
TEST(ThreadsOfTest, ShardsOnTheSameNodesHaveCoresOneAfterTheOther) {
  EXPECT_EQ(ThreadsOfAll(3, 8, {}), (std::vector{0, 2, 2, 3, 5, 3}));
  EXPECT_EQ(ThreadsOfAll(3, 8, {{}, {}, {}}), (std::vector{0, 2, 2, 3, 5, 3}));
}

TEST(ThreadsOfTest, EachHasOneAtLeast) {
  EXPECT_EQ(ThreadsOfAll(3, 2, {}), (std::vector{0, 1, 1, 1, 2, 1}));
}

TEST(ThreadsOfTest, WhoIsOnOtherNodesTakesNone) {
  EXPECT_EQ(ThreadsOfAll(2, 28, {{0}, {1}}), (std::vector{0, 14, 0, 14}));
  EXPECT_EQ(ThreadsOfAll(4, 28, {{0, 1}, {2, 3}, {0, 1}, {2, 3}}), (std::vector{0, 7, 0, 7, 7, 7, 7, 7}));
}

}  // namespace
}  // namespace tandem
