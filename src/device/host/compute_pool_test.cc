#include "device/host/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace tandem {
namespace {

TEST(ComputePoolTest, RunsEveryTaskExactlyOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ComputePool pool(num_threads, "pool");
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int64_t num_tasks : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
      pool.ParallelFor(num_tasks, [&](int64_t i) { runs[static_cast<size_t>(i)].fetch_add(1); });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

// Plain writes of one call must be visible to the next, whoever ran the task.
TEST(ComputePoolTest, ConsecutiveCallsSeeEachOthersWrites) {
  ComputePool pool(3, "pool");
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(64, [&](int64_t i) { values[static_cast<size_t>((i + round) % 64)] += 1; });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 64 * 2000);
}

TEST(ComputePoolTest, WorkersWakeAfterSleeping) {
  ComputePool pool(2, "pool");
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    // Two tasks that need each other: finishes only if the sleeping worker comes back.
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

}  // namespace
}  // namespace tandem
