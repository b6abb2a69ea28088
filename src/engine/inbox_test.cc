#include "engine/inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr int64_t kManyQueued = int64_t{1} << 40;

Result<RequestId> SubmitOne(Inbox* inbox) {
  return inbox->Submit(std::make_unique<Request>());
}

// As the engine thread ends a request, without anything to publish.
void EndOne(Inbox* inbox) {
  const EngineStats nothing;
  inbox->EndRequest([](EngineStats* /*stats*/) {}, [&]() -> const EngineStats& { return nothing; });
}

bool IsBlocked(const std::future<void>& future) {
  constexpr std::chrono::milliseconds kLook{20};
  return future.wait_for(kLook) == std::future_status::timeout;
}

std::vector<uint64_t> SeedsOf(uint64_t inbox_seed) {
  Inbox inbox(kManyQueued, inbox_seed);
  for (int i = 0; i < 4; ++i) {
    auto request = std::make_unique<Request>();
    if (i == 1) request->sampling.seed = 77;
    EXPECT_EQ(inbox.Submit(std::move(request)).value(), static_cast<RequestId>(i + 1));
  }
  Inbox::News news;
  EXPECT_TRUE(inbox.Take(false, false, &news));
  std::vector<uint64_t> seeds;
  for (const auto& request : news.arrived) {
    EXPECT_EQ(request->id, seeds.size() + 1);
    seeds.push_back(request->seed);
  }
  return seeds;
}

TEST(InboxTest, IdsCountUpAndSeedsRepeatWithThatOfTheInbox) {
  const std::vector<uint64_t> seeds = SeedsOf(5);
  ASSERT_EQ(seeds.size(), 4U);
  EXPECT_EQ(seeds[1], 77U);
  EXPECT_NE(seeds[0], seeds[2]);
  EXPECT_EQ(SeedsOf(5), seeds);
  EXPECT_NE(SeedsOf(6)[0], seeds[0]);
}

TEST(InboxTest, WhatWaitsForTheEngineAndInItFillsTheQueue) {
  Inbox inbox(3, 1);
  EngineStats published;
  published.num_waiting = 1;
  inbox.Publish(published);
  ASSERT_TRUE(SubmitOne(&inbox).ok());
  Inbox::News news;
  ASSERT_TRUE(inbox.Take(false, false, &news));
  EXPECT_EQ(inbox.Stats().num_waiting, 2);  // taken, not yet published
  ASSERT_TRUE(SubmitOne(&inbox).ok());
  EXPECT_EQ(inbox.Stats().num_waiting, 3);
  const auto rejected = SubmitOne(&inbox);
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.error().code, ErrorCode::kResourceExhausted);
  // The engine does not know how many were rejected.
  published.num_waiting = 0;
  inbox.Publish(published);
  EXPECT_EQ(inbox.Stats().rejected_requests, 1U);
  EXPECT_EQ(inbox.Stats().num_waiting, 1);
  EXPECT_EQ(SubmitOne(&inbox).value(), 3U);  // the rejected one got no id
}

TEST(InboxTest, TakeWaitsForNewsOnlyWithoutWork) {
  Inbox inbox(kManyQueued, 1);
  Inbox::News news;
  news.cancelled = {9};
  news.cancel_below = 9;
  EXPECT_TRUE(inbox.Take(true, false, &news));
  EXPECT_FALSE(news.cancels());
  EXPECT_TRUE(inbox.Take(false, true, &news));  // comes back without news, to look at something else
  EXPECT_TRUE(news.arrived.empty());
  auto taken = std::async(std::launch::async, [&] { inbox.Take(false, false, &news); });
  EXPECT_TRUE(IsBlocked(taken));
  inbox.Cancel(4);
  taken.get();
  EXPECT_EQ(news.cancelled, std::vector<RequestId>{4});
}

TEST(InboxTest, DrainTakesNoMoreAndWaitsForTheLast) {
  Inbox inbox(kManyQueued, 1);
  ASSERT_TRUE(SubmitOne(&inbox).ok());
  auto drained = std::async(std::launch::async, [&] { inbox.Drain(); });
  int64_t num_in_flight = 1;
  auto submitted = SubmitOne(&inbox);
  for (; submitted.ok(); submitted = SubmitOne(&inbox)) ++num_in_flight;
  EXPECT_EQ(submitted.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(inbox.Stats().rejected_requests, 0U);  // those are of a full queue
  for (; num_in_flight > 1; --num_in_flight) EndOne(&inbox);
  EXPECT_TRUE(IsBlocked(drained));
  EndOne(&inbox);
  drained.get();
}

TEST(InboxTest, CancelAllIsForThoseThatCameBeforeIt) {
  Inbox inbox(kManyQueued, 1);
  ASSERT_TRUE(SubmitOne(&inbox).ok());
  Inbox::News news;
  ASSERT_TRUE(inbox.Take(false, false, &news));
  ASSERT_TRUE(SubmitOne(&inbox).ok());  // has arrived, and is not taken yet
  auto idle = std::async(std::launch::async, [&] { inbox.CancelAll(); });
  do {
    ASSERT_TRUE(inbox.Take(false, false, &news));
  } while (!news.cancels());
  EXPECT_EQ(news.cancel_below, 3U);
  EXPECT_EQ(SubmitOne(&inbox).value(), 3U);
  ASSERT_TRUE(inbox.Take(false, false, &news));
  EXPECT_FALSE(news.cancels());  // said once
  EndOne(&inbox);
  EndOne(&inbox);
  EXPECT_TRUE(IsBlocked(idle));
  EndOne(&inbox);
  idle.get();
  inbox.CancelAll();  // with nothing in flight it does not wait
}

TEST(InboxTest, StopEndsOnceThereIsNoWork) {
  Inbox inbox(kManyQueued, 1);
  ASSERT_TRUE(SubmitOne(&inbox).ok());
  inbox.Stop();
  EXPECT_EQ(SubmitOne(&inbox).error().code, ErrorCode::kUnavailable);
  Inbox::News news;
  EXPECT_TRUE(inbox.Take(false, false, &news));  // someone is to be told the end
  ASSERT_EQ(news.arrived.size(), 1U);
  EXPECT_GT(news.cancel_below, news.arrived[0]->id);
  EXPECT_TRUE(inbox.Take(true, false, &news));
  EXPECT_FALSE(inbox.Take(false, false, &news));
}

TEST(InboxTest, StopWakesTheEngineThread) {
  Inbox inbox(kManyQueued, 1);
  auto goes_on = std::async(std::launch::async, [&] {
    Inbox::News news;
    return inbox.Take(false, false, &news);
  });
  inbox.Stop();
  EXPECT_FALSE(goes_on.get());
}

TEST(InboxTest, TheLastEndPublishesEverything) {
  Inbox inbox(kManyQueued, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(SubmitOne(&inbox).ok());
  int num_gauges = 0;
  int num_last = 0;
  EngineStats everything;
  everything.num_running = 4;
  everything.iterations = 9;
  const auto end = [&] {
    inbox.EndRequest(
        [&](EngineStats* stats) {
          ++num_gauges;
          stats->num_running = 1;
        },
        [&]() -> const EngineStats& {
          ++num_last;
          return everything;
        });
  };
  end();
  EXPECT_EQ(num_gauges, 1);
  EXPECT_EQ(num_last, 0);
  EXPECT_EQ(inbox.Stats().num_running, 1);
  EXPECT_EQ(inbox.Stats().iterations, 0U);
  end();
  EXPECT_EQ(num_gauges, 1);
  EXPECT_EQ(num_last, 1);
  EXPECT_EQ(inbox.Stats().num_running, 4);
  EXPECT_EQ(inbox.Stats().iterations, 9U);
}

// Clients submit and cancel, the engine thread ends what it takes: nothing is lost, nothing comes twice.
TEST(InboxTest, NothingIsLostBetweenThreads) {
  constexpr int kClients = 4;
  constexpr int kRequestsPerClient = 500;
  Inbox inbox(16, 1);
  std::map<RequestId, int> arrivals;
  std::map<RequestId, int> cancels;
  bool in_order = true;
  std::thread engine([&] {
    Inbox::News news;
    const EngineStats nothing;
    RequestId last_id = 0;
    for (bool goes_on = true; goes_on;) {
      goes_on = inbox.Take(false, false, &news);
      for (const auto& request : news.arrived) {
        in_order = in_order && request->id > last_id;
        last_id = request->id;
        ++arrivals[request->id];
      }
      for (const RequestId id : news.cancelled) ++cancels[id];
      inbox.Publish(nothing);
      for (size_t i = 0; i < news.arrived.size(); ++i) EndOne(&inbox);
    }
  });
  std::atomic<uint64_t> num_rejected{0};
  std::vector<std::future<std::vector<RequestId>>> clients;
  clients.reserve(kClients);
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::async(std::launch::async, [&] {
      std::vector<RequestId> submitted;
      while (submitted.size() < kRequestsPerClient) {
        const auto id = SubmitOne(&inbox);
        if (id.ok()) {
          submitted.push_back(*id);
          inbox.Cancel(*id);
        } else {
          ++num_rejected;
          std::this_thread::yield();
        }
      }
      return submitted;
    }));
  }
  std::map<RequestId, int> expected;
  for (auto& client : clients) {
    for (const RequestId id : client.get()) ++expected[id];
  }
  inbox.Drain();
  EXPECT_EQ(inbox.Stats().rejected_requests, num_rejected);
  EXPECT_EQ(inbox.Stats().num_waiting, 0);
  inbox.Stop();
  engine.join();
  EXPECT_EQ(expected.size(), static_cast<size_t>(kClients * kRequestsPerClient));
  EXPECT_EQ(arrivals, expected);
  EXPECT_EQ(cancels, expected);
  EXPECT_TRUE(in_order);
}

}  // namespace
}  // namespace tandem
