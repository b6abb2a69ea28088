#include "kv_events/kv_event_publisher.h"

#include <gtest/gtest.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace tandem {
namespace {

using Frames = std::vector<std::vector<uint8_t>>;
constexpr auto kPatience = std::chrono::seconds(20);

KvEventsConfig Config() {
  return {.endpoint = "tcp://127.0.0.1:*", .replay_endpoint = "tcp://127.0.0.1:*", .topic = "kv@pod@model"};
}

std::unique_ptr<KvEventPublisher> Start(const KvEventsConfig& config) {
  auto publisher = KvEventPublisher::Start(config);
  EXPECT_TRUE(publisher.ok()) << publisher.error().message;
  return std::move(*publisher);
}

std::unique_ptr<ZmqSocket> Connect(int type, const std::string& address) {
  auto socket = ZmqSocket::Create(type);
  EXPECT_TRUE(socket.ok() && (*socket)->Connect(address).ok());
  if (type == ZMQ_SUB) zmq_setsockopt((*socket)->handle(), ZMQ_SUBSCRIBE, "kv@", 3);
  return std::move(*socket);
}

Frames Next(ZmqSocket* socket, std::chrono::milliseconds patience = kPatience) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  for (;;) {
    Frames frames = socket->Receive();
    if (!frames.empty() || std::chrono::steady_clock::now() > give_up) return frames;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A removed block, told apart by its hash.
KvEvents Removed(uint64_t hash) {
  return {{.kind = KvEvent::Kind::kRemoved, .tier = Tier::kCpu, .block_hashes = {hash}}};
}

uint64_t Number(const std::vector<uint8_t>& bytes) {
  uint64_t number = 0;
  for (const uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

uint64_t HashIn(const std::vector<uint8_t>& batch) {
  const auto decoded = nlohmann::json::from_msgpack(batch);
  return decoded.at(1).at(0).at("block_hashes").at(0).get<uint64_t>();
}

// Until the subscription has reached the publisher. How many batches that took.
uint64_t PublishUntilHeard(KvEventPublisher* publisher, ZmqSocket* subscriber, Frames* first) {
  for (uint64_t i = 0; i < 2000; ++i) {
    publisher->Publish(Removed(i));
    *first = Next(subscriber, std::chrono::milliseconds(10));
    if (!first->empty()) return i + 1;
  }
  return 0;
}

// From a number on, until the mark that ends an answer.
std::vector<Frames> Replayed(ZmqSocket* asker, uint64_t first) {
  std::vector<uint8_t> number(8, 0);
  for (size_t i = 0; i < 8; ++i) number[i] = static_cast<uint8_t>(first >> (8 * (7 - i)));
  asker->Send(std::array<std::span<const uint8_t>, 2>{std::span<const uint8_t>(), number});
  std::vector<Frames> answers;
  do {
    answers.push_back(Next(asker));
    if (answers.back().size() != 3) return {};
  } while (!answers.back()[2].empty());
  EXPECT_EQ(Number(answers.back()[1]), ~uint64_t{0});
  answers.pop_back();
  return answers;
}

TEST(KvEventPublisher, SubscribersGetBatchesInOrder) {
  const auto publisher = Start(Config());
  const auto subscriber = Connect(ZMQ_SUB, publisher->endpoint());
  Frames frames;
  const uint64_t num_before = PublishUntilHeard(publisher.get(), subscriber.get(), &frames);
  ASSERT_GT(num_before, 0U);
  uint64_t number = Number(frames[1]);
  for (uint64_t i = num_before; i < num_before + 100; ++i) publisher->Publish(Removed(i));
  while (number + 1 < num_before + 100) {
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(std::string(frames[0].begin(), frames[0].end()), "kv@pod@model");
    EXPECT_EQ(frames[1].size(), 8U);
    EXPECT_EQ(HashIn(frames[2]), number);
    frames = Next(subscriber.get());
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(Number(frames[1]), number + 1);
    ++number;
  }
  EXPECT_EQ(publisher->counts().events, num_before + 100);
  EXPECT_EQ(publisher->counts().dropped_events, 0U);
}

TEST(KvEventPublisher, WhatWasMissedIsSentAgain) {
  KvEventsConfig config = Config();
  config.buffer_steps = 10;
  const auto publisher = Start(config);
  for (uint64_t i = 0; i < 25; ++i) publisher->Publish(Removed(i));
  const auto asker = Connect(ZMQ_DEALER, publisher->replay_endpoint());
  // The last ones may still be on their way.
  std::vector<Frames> answers;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  do answers = Replayed(asker.get(), 20);
  while (answers.size() < 5 && std::chrono::steady_clock::now() < give_up);
  ASSERT_EQ(answers.size(), 5U);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(answers[i][0].empty());
    EXPECT_EQ(Number(answers[i][1]), 20 + i);
    EXPECT_EQ(HashIn(answers[i][2]), 20 + i);
  }
  // What is older than buffer_steps is gone, and nothing is newer than the newest.
  answers = Replayed(asker.get(), 0);
  ASSERT_EQ(answers.size(), 10U);
  EXPECT_EQ(Number(answers.front()[1]), 15U);
  EXPECT_TRUE(Replayed(asker.get(), 25).empty());
}

TEST(KvEventPublisher, RequestsThatAreNoneGetNoAnswer) {
  const auto publisher = Start(Config());
  publisher->Publish(Removed(5));
  const auto asker = Connect(ZMQ_DEALER, publisher->replay_endpoint());
  const std::vector<uint8_t> bytes(8, 1);
  const std::span<const uint8_t> all(bytes);
  using Request = std::vector<std::span<const uint8_t>>;
  for (const Request& request : {Request{all}, Request{all.first(0)}, Request{all.first(0), all.first(7)},
                                 Request{all, all}, Request{all.first(0), all, all}})
    asker->Send(request);
  const std::vector<Frames> answers = Replayed(asker.get(), 0);
  ASSERT_LE(answers.size(), 1U);
  EXPECT_TRUE(asker->Receive().empty());
}

TEST(KvEventPublisher, WithoutReplayNothingIsKept) {
  KvEventsConfig config = Config();
  config.replay_endpoint.reset();
  const auto publisher = Start(config);
  EXPECT_EQ(publisher->replay_endpoint(), "");
  publisher->Publish(Removed(1));
}

TEST(KvEventPublisher, AnAddressThatIsTakenIsNamed) {
  const auto publisher = Start(Config());
  KvEventsConfig config = Config();
  config.replay_endpoint = publisher->replay_endpoint();
  auto second = KvEventPublisher::Start(config);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().param, "kv-events-config");
  EXPECT_EQ(second.error().message, "--kv-events-config, replay_endpoint: cannot bind " +
                                        publisher->replay_endpoint() + ": Address already in use");
  config.endpoint = "nonsense://*";
  second = KvEventPublisher::Start(config);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            "--kv-events-config, endpoint: cannot bind nonsense://*: Protocol not supported");
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
