#include "server/tiers_event.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TEST(TiersEventTest, SaysWhatTheEngineIsAt) {
  LiveView view;
  view.stats.num_running = 1;
  view.stats.num_waiting = 3;
  view.stats.block_size = 16;
  view.stats.gpu_blocks_total = 100;
  view.stats.gpu_blocks_free = 97;
  view.stats.prefix_blocks = {12, 5};
  view.stats.strategy_iterations = {{"gpu-only", 5}, {"async", 2}};
  view.requests = {{.id = 7,
                    .state = LiveRequest::State::kDecode,
                    .tier = Tier::kCpu,
                    .prompt_tokens = 40,
                    .computed_tokens = 44,
                    .generated_tokens = 5,
                    .max_tokens = 64,
                    .blocks = 3,
                    .preemptions = 1},
                   {.id = 9, .prompt_tokens = 12, .max_tokens = 8}};
  view.num_left_off = 2;
  LatencyWindow latencies;
  latencies.AddTimeToFirstToken(0.2);
  const auto json = nlohmann::json::parse(
      TiersJson({.time_s = 1.5, .strategy = "auto", .view = &view, .stats = {}, .latencies = &latencies}));
  EXPECT_EQ(json["tiers"]["gpu"], nlohmann::json({{"blocks", 100}, {"free", 97}, {"cached", 12}}));
  EXPECT_EQ(json["tiers"]["cpu"]["cached"], 5);
  EXPECT_EQ(json["running"], 1);
  EXPECT_EQ(json["waiting"], 3);
  EXPECT_EQ(json["requests_left_off"], 2);
  EXPECT_EQ(json["requests"][0]["tier"], "cpu");
  EXPECT_EQ(json["requests"][0]["state"], "decode");
  EXPECT_EQ(json["requests"][0]["computed_tokens"], 44);
  EXPECT_EQ(json["requests"][1]["state"], "waiting");
  EXPECT_TRUE(json["requests"][1]["tier"].is_null());
  EXPECT_EQ(json["totals"]["strategy_iterations"]["async"], 2);
  EXPECT_EQ(json["last_minute"]["time_to_first_token"]["count"], 1);
  EXPECT_NEAR(json["last_minute"]["time_to_first_token"]["p50_ms"].get<double>(), 200, 10);
  EXPECT_EQ(json["last_minute"]["inter_token_latency"], nlohmann::json({{"count", 0}}));
}

TEST(TiersEventTest, WithoutAViewOnlyAnIdleEngineHasNoRequests) {
  const LatencyWindow latencies;
  TiersEvent event{.strategy = "auto", .latencies = &latencies};
  EXPECT_TRUE(nlohmann::json::parse(TiersJson(event))["requests"].empty());
  EXPECT_TRUE(nlohmann::json::parse(TiersJson(event))["requests"].is_array());
  event.stats.num_waiting = 1;
  EXPECT_TRUE(nlohmann::json::parse(TiersJson(event))["requests"].is_null());
}

TEST(TiersEventTest, ATimelineBeginsWithItsFirstSpan) {
  const auto json = nlohmann::json::parse(
      TimelineJson({{.lane = "gpu", .name = "attention 3", .begin_ns = 5'000, .end_ns = 9'500},
                    {.lane = "engine", .name = "plan", .begin_ns = 2'000, .end_ns = 3'000},
                    {.lane = "gpu", .name = "logits", .begin_ns = 9'500, .end_ns = 10'000}}));
  ASSERT_EQ(json["lanes"].size(), 2U);
  EXPECT_EQ(json["lanes"][0]["name"], "engine");
  EXPECT_EQ(json["lanes"][0]["spans"], nlohmann::json::parse(R"([["plan", 0.0, 1.0]])"));
  EXPECT_EQ(json["lanes"][1]["spans"],
            nlohmann::json::parse(R"([["attention 3", 3.0, 4.5], ["logits", 7.5, 0.5]])"));
}

}  // namespace
}  // namespace tandem
