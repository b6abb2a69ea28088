#include "kv_events/kv_events_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::HasSubstr;

KvEventsConfig Parse(std::string_view text) {
  auto config = ParseKvEventsConfig(text);
  EXPECT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->has_value()) << text;
  return **config;
}

TEST(KvEventsConfig, DefaultsAreVllms) {
  const KvEventsConfig config = Parse(R"({"enable_kv_cache_events": true})");
  EXPECT_EQ(config.endpoint, "tcp://*:5557");
  EXPECT_FALSE(config.replay_endpoint);
  EXPECT_EQ(config.buffer_steps, 10'000);
  EXPECT_EQ(config.hwm, 100'000);
  EXPECT_EQ(config.max_queue_size, 100'000);
  EXPECT_EQ(config.topic, "");
  EXPECT_EQ(config.encoding, KvEventEncoding::kMap);
}

TEST(KvEventsConfig, ReadsEveryKey) {
  const KvEventsConfig config = Parse(R"({
      "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://router:6000",
      "replay_endpoint": "tcp://*:6001", "buffer_steps": 5, "hwm": 0, "max_queue_size": 7,
      "topic": "kv@10.0.0.1@model", "encoding": "array"})");
  EXPECT_EQ(config.endpoint, "tcp://router:6000");
  EXPECT_EQ(config.replay_endpoint, "tcp://*:6001");
  EXPECT_EQ(config.buffer_steps, 5);
  EXPECT_EQ(config.hwm, 0);
  EXPECT_EQ(config.max_queue_size, 7);
  EXPECT_EQ(config.topic, "kv@10.0.0.1@model");
  EXPECT_EQ(config.encoding, KvEventEncoding::kArray);
}

TEST(KvEventsConfig, NullIsTheDefault) {
  const KvEventsConfig config = Parse(
      R"({"enable_kv_cache_events": true, "publisher": null, "replay_endpoint": null, "buffer_steps": null})");
  EXPECT_FALSE(config.replay_endpoint);
  EXPECT_EQ(config.buffer_steps, 10'000);
}

TEST(KvEventsConfig, NothingIsPublishedUnlessItIsWanted) {
  for (const char* text :
       {"", "{}", R"({"enable_kv_cache_events": false})", R"({"publisher": "zmq"})",
        R"({"enable_kv_cache_events": true, "publisher": "null"})", R"({"endpoint": "tcp://*:1"})"}) {
    const auto config = ParseKvEventsConfig(text);
    ASSERT_TRUE(config.ok()) << text;
    EXPECT_FALSE(*config) << text;
  }
}

TEST(KvEventsConfig, WhatIsWrongIsNamed) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"nothing", "it is not a JSON object"},
      {"[]", "it is not a JSON object"},
      {"{\"endpoint\": ", "it is not a JSON object"},
      {R"({"endpiont": "tcp://*:1"})", "it has no key 'endpiont'"},
      {R"({"enable_kv_cache_events": 1})", "enable_kv_cache_events is a number instead of true or false"},
      {R"({"publisher": "kafka"})", "publisher 'kafka' is neither zmq nor null"},
      {R"({"publisher": []})", "publisher is a array instead of a string"},
      {R"({"endpoint": 5557})", "endpoint is a number instead of a string"},
      {R"({"endpoint": "localhost:5557"})", "endpoint is no ZeroMQ address"},
      {R"({"endpoint": "tcp://*:5557\n"})", "endpoint is no ZeroMQ address"},
      {R"({"endpoint": ""})", "endpoint is no ZeroMQ address"},
      {R"({"replay_endpoint": "nowhere"})", "replay_endpoint is no ZeroMQ address"},
      {R"({"buffer_steps": -1})", "buffer_steps is not a whole number from 0 to 2147483647"},
      {R"({"buffer_steps": 1.5})", "buffer_steps is not a whole number"},
      {R"({"hwm": "many"})", "hwm is not a whole number"},
      {R"({"hwm": 18446744073709551615})", "hwm is not a whole number"},
      {R"({"max_queue_size": 0})", "max_queue_size is not a whole number from 1 to 2147483647"},
      {R"({"topic": {}})", "topic is a object instead of a string"},
      {R"({"encoding": "json"})", "encoding 'json' is neither map nor array"},
  };
  for (const auto& [text, message] : cases) {
    const auto config = ParseKvEventsConfig(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
    EXPECT_EQ(config.error().param, "kv-events-config");
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(KvEventsConfig, LongAndDeepTextsAreRefused) {
  EXPECT_FALSE(ParseKvEventsConfig(std::string(100'000, '[')).ok());
  EXPECT_FALSE(ParseKvEventsConfig(R"({"endpoint": "tcp://)" + std::string(5000, 'a') + "\"}").ok());
  const auto config = ParseKvEventsConfig("{\"" + std::string(5000, 'k') + "\": 1}");
  ASSERT_FALSE(config.ok());
  EXPECT_LT(config.error().message.size(), 400U);
}

}  // namespace
}  // namespace tandem
