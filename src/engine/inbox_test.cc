#include "engine/inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "engine/requests_testing.h"

namespace tandem {
namespace {

using testing::MakeRequest;

constexpr auto kNoGauges = [](EngineStats*) {};

// A request of the inbox has ended; `stats` is all that there is to say then.
void End(Inbox* inbox, const EngineStats& stats = {}) {
  inbox->EndRequest(kNoGauges, [&]() -> const EngineStats& { return stats; });
}

TEST(Inbox, NumbersRequestsAndDrawsSeedsForThoseWithoutOne) {
  Inbox inbox(10, 7);
  Inbox same(10, 7);
  auto own = MakeRequest(0, 3);
  own->sampling.seed = 42;
  EXPECT_EQ(*inbox.Submit(MakeRequest(0, 3)), 1U);
  EXPECT_EQ(*inbox.Submit(std::move(own)), 2U);
  EXPECT_EQ(*inbox.Submit(MakeRequest(0, 3)), 3U);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(same.Submit(MakeRequest(0, 3)).ok());
  Inbox::News news;
  ASSERT_TRUE(inbox.Take(false, false, &news));
  ASSERT_EQ(news.arrived.size(), 3U);
  Inbox::News others;
  ASSERT_TRUE(same.Take(false, false, &others));
  EXPECT_EQ(news.arrived[1]->seed, 42U);
  EXPECT_NE(news.arrived[0]->seed, news.arrived[2]->seed);
  // A seed that a client brings takes none from the others' sequence.
  EXPECT_EQ(news.arrived[0]->seed, others.arrived[0]->seed);
  EXPECT_EQ(news.arrived[2]->seed, others.arrived[1]->seed);
}

TEST(Inbox, RefusesBeyondTheQueue) {
  Inbox inbox(2, 0);
  ASSERT_TRUE(inbox.Submit(MakeRequest(0, 3)).ok());
  Inbox::News news;
  ASSERT_TRUE(inbox.Take(false, false, &news));
  // Taken, but waiting as far as anybody knows.
  ASSERT_TRUE(inbox.Submit(MakeRequest(0, 3)).ok());
  EXPECT_EQ(inbox.Stats().num_waiting, 2);
  const auto refused = inbox.Submit(MakeRequest(0, 3));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  // The first one runs now.
  inbox.Publish({.num_running = 1});
  EXPECT_EQ(inbox.Stats().num_waiting, 1);
  EXPECT_EQ(inbox.Stats().rejected_requests, 1U);
  EXPECT_EQ(*inbox.Submit(MakeRequest(0, 3)), 3U);
}

TEST(Inbox, CancellationsComeWithWhatTheyAreFor) {
  Inbox inbox(10, 0);
  const RequestId first = *inbox.Submit(MakeRequest(0, 3));
  inbox.Cancel(first);
  Inbox::News news;
  ASSERT_TRUE(inbox.Take(false, false, &news));
  EXPECT_EQ(news.cancelled, std::vector<RequestId>{first});
  EXPECT_EQ(news.arrived.size(), 1U);
  EXPECT_EQ(news.cancel_below, 0U);
  // Told once; with work to do nobody waits for more.
  ASSERT_TRUE(inbox.Take(true, false, &news));
  EXPECT_TRUE(news.arrived.empty());
  EXPECT_FALSE(news.cancels());
  // With something to look at, not for long.
  ASSERT_TRUE(inbox.Take(false, true, &news));
  EXPECT_FALSE(news.cancels());
}

TEST(Inbox, DrainWaitsForTheLastAndRefusesOthers) {
  Inbox inbox(10, 0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(inbox.Submit(MakeRequest(0, 3)).ok());
  auto drained = std::async(std::launch::async, [&] { inbox.Drain(); });
  // Until Drain has begun others are let in.
  Result<RequestId> late = inbox.Submit(MakeRequest(0, 3));
  for (; late.ok(); late = inbox.Submit(MakeRequest(0, 3))) {
    End(&inbox);
    Inbox::News news;
    ASSERT_TRUE(inbox.Take(true, false, &news));
    inbox.Publish({});
  }
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  End(&inbox);
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EngineStats stats;
  stats.generation_tokens = 9;
  End(&inbox, stats);
  drained.get();
  EXPECT_EQ(inbox.Stats().generation_tokens, 9U);
}

TEST(Inbox, EndsUpdateGaugesAndTheLastOneEverything) {
  Inbox inbox(10, 0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(inbox.Submit(MakeRequest(0, 3)).ok());
  int num_gauges = 0;
  int num_last = 0;
  const EngineStats all{.generation_tokens = 5};
  const auto end = [&] {
    inbox.EndRequest(
        [&](EngineStats* stats) {
          stats->gpu_blocks_free = 3;
          ++num_gauges;
        },
        [&]() -> const EngineStats& {
          ++num_last;
          return all;
        });
  };
  end();
  EXPECT_EQ(num_gauges, 1);
  EXPECT_EQ(num_last, 0);
  EXPECT_EQ(inbox.Stats().gpu_blocks_free, 3);
  EXPECT_EQ(inbox.Stats().generation_tokens, 0U);
  end();
  EXPECT_EQ(num_last, 1);
  EXPECT_EQ(inbox.Stats().generation_tokens, 5U);
}

// An engine that ends all that it is told of, against callers that submit, cancel and at last stop it.
TEST(Inbox, LosesNothingBetweenThreads) {
  constexpr int kThreads = 3;
  constexpr int kEach = 300;
  Inbox inbox(kThreads * kEach, 0);
  std::set<RequestId> seen;
  std::thread engine([&] {
    Inbox::News news;
    while (inbox.Take(false, false, &news)) {
      inbox.Publish({});
      for (const auto& request : news.arrived) {
        EXPECT_TRUE(seen.insert(request->id).second);
        End(&inbox);
      }
    }
  });
  std::vector<std::thread> callers;
  std::atomic<int> num_accepted = 0;
  callers.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    callers.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const auto id = inbox.Submit(MakeRequest(0, 3));
        if (id.ok()) ++num_accepted;
        if (id.ok() && i % 7 == 0) inbox.Cancel(*id);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  inbox.CancelAll();
  inbox.Stop();
  engine.join();
  EXPECT_EQ(static_cast<int>(seen.size()), num_accepted);
  EXPECT_EQ(num_accepted, kThreads * kEach);
  EXPECT_EQ(inbox.Submit(MakeRequest(0, 3)).error().code, ErrorCode::kUnavailable);
}

TEST(Inbox, StopCancelsAllAndEndsOnceNothingIsLeft) {
  Inbox inbox(10, 0);
  const RequestId last = *inbox.Submit(MakeRequest(0, 3));
  inbox.Stop();
  Inbox::News news;
  // What has arrived must be ended first.
  EXPECT_TRUE(inbox.Take(false, false, &news));
  EXPECT_EQ(news.arrived.size(), 1U);
  EXPECT_EQ(news.cancel_below, last + 1);
  EXPECT_TRUE(inbox.Take(true, false, &news));
  EXPECT_FALSE(inbox.Take(false, false, &news));
}

}  // namespace
}  // namespace tandem
