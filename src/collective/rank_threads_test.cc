#include "collective/rank_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tandem {
namespace {

TEST(RankThreadsTest, EachRankHasAThreadOfItsOwnAndAllWorkAtATime) {
  constexpr int kRanks = 3;
  RankThreads threads(kRanks);
  std::vector<std::thread::id> first(kRanks);
  for (int run = 0; run < 50; ++run) {
    std::atomic<int> num_there = 0;
    std::vector<std::thread::id> ids(kRanks);
    threads.Run([&](int rank) {
      ids[static_cast<size_t>(rank)] = std::this_thread::get_id();
      // Nobody goes on before all have come.
      ++num_there;
      while (num_there < kRanks) std::this_thread::yield();
    });
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    if (run == 0) first = ids;
    EXPECT_EQ(ids, first);
    EXPECT_NE(ids[1], ids[2]);
    EXPECT_NE(ids[1], ids[0]);
  }
}

TEST(RankThreadsTest, OneRankIsTheCaller) {
  RankThreads threads(1);
  int num_calls = 0;
  threads.Run([&](int rank) { num_calls += 1 + rank; });
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace tandem
