#include "execute/stall_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Look = StallWatch::Look;

TEST(StallWatchTest, StallsAfterTheTimeoutWithoutProgress) {
  StallWatch watch(milliseconds(100));
  EXPECT_EQ(watch.longest_look(), milliseconds(25));
  // The first look is at something new.
  EXPECT_FALSE(watch.Stalled(milliseconds(25), {.num_tasks = 7, .owes_output = true}));
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(watch.Stalled(milliseconds(25), {.num_tasks = 7, .owes_output = true}));
  EXPECT_TRUE(watch.Stalled(milliseconds(25), {.num_tasks = 7, .owes_output = true}));
}

TEST(StallWatchTest, ProgressStartsAnew) {
  for (const Look progress : {Look{.num_tasks = 8, .owes_output = true}, Look{.num_tasks = 7}}) {
    StallWatch watch(milliseconds(100));
    for (int i = 0; i < 4; ++i)
      EXPECT_FALSE(watch.Stalled(milliseconds(25), {.num_tasks = 7, .owes_output = true}));
    EXPECT_FALSE(watch.Stalled(milliseconds(25), progress));
    const Look silent = {.num_tasks = progress.num_tasks, .owes_output = true};
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(watch.Stalled(milliseconds(25), silent));
    EXPECT_TRUE(watch.Stalled(milliseconds(25), silent));
  }
}

// The process was stopped for an hour.
TEST(StallWatchTest, ALongLookCountsAsOne) {
  StallWatch watch(milliseconds(1000));
  EXPECT_EQ(watch.longest_look(), milliseconds(50));
  EXPECT_FALSE(watch.Stalled(std::chrono::hours(1), {.num_tasks = 0, .owes_output = true}));
  for (int i = 0; i < 19; ++i)
    EXPECT_FALSE(watch.Stalled(std::chrono::hours(1), {.num_tasks = 0, .owes_output = true}));
  EXPECT_TRUE(watch.Stalled(std::chrono::hours(1), {.num_tasks = 0, .owes_output = true}));
}

TEST(StallWatchTest, ForgivesWhatIsNotWaitedForAnyMore) {
  StallWatch watch(milliseconds(4));
  for (int i = 0; i < 4; ++i)
    EXPECT_FALSE(watch.Stalled(milliseconds(1), {.num_tasks = 0, .owes_output = true}));
  watch.Forgive();
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(watch.Stalled(milliseconds(1), {.num_tasks = 0, .owes_output = true}));
  EXPECT_TRUE(watch.Stalled(milliseconds(1), {.num_tasks = 0, .owes_output = true}));
}

// Time that passes in `ended` only.
struct Waited {
  bool ended = false;
  microseconds time{0};
  microseconds longest{0};
};

template <typename LookAt>
Waited Await(milliseconds timeout, microseconds ends_after, const LookAt& look_at) {
  const StallWatch watch(timeout);
  Waited waited;
  waited.ended = watch.Await(
      {.first = microseconds(20), .slowest = microseconds(1000)},
      [&](microseconds time) {
        if (waited.time >= ends_after) return true;
        waited.time += time;
        waited.longest = std::max(waited.longest, time);
        return false;
      },
      [&] { return look_at(waited.time); });
  return waited;
}

TEST(StallWatchTest, AwaitsTheEndOrAStall) {
  const auto silent = [](microseconds) { return Look{.num_tasks = 3, .owes_output = true}; };
  const Waited at_once = Await(milliseconds(100), microseconds(0), silent);
  EXPECT_TRUE(at_once.ended);
  EXPECT_EQ(at_once.time, microseconds(0));

  const Waited in_time = Await(milliseconds(100), milliseconds(90), silent);
  EXPECT_TRUE(in_time.ended);
  EXPECT_LE(in_time.time, milliseconds(91));
  EXPECT_EQ(in_time.longest, microseconds(1000));

  const Waited stalled = Await(milliseconds(100), milliseconds(200), silent);
  EXPECT_FALSE(stalled.ended);
  EXPECT_GE(stalled.time, milliseconds(100));
  EXPECT_LE(stalled.time, milliseconds(102));

  // Slow, but it goes on: a task every 50 ms, then nothing more.
  const auto slow = [](microseconds time) {
    return Look{.num_tasks = std::min<int64_t>(time / milliseconds(50), 10), .owes_output = true};
  };
  EXPECT_TRUE(Await(milliseconds(100), milliseconds(590), slow).ended);
  const Waited gone = Await(milliseconds(100), std::chrono::hours(1), slow);
  EXPECT_FALSE(gone.ended);
  EXPECT_GE(gone.time, milliseconds(600));
  EXPECT_LE(gone.time, milliseconds(602));
}

}  // namespace
}  // namespace tandem
