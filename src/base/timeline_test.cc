#include "base/timeline.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

nlohmann::json Written(const Timeline& timeline) {
  const std::string path = testing::TempDir() + "timeline_test.json";
  const Status written = timeline.WriteChromeTrace(path);
  EXPECT_TRUE(written.ok());
  std::ifstream file(path);
  nlohmann::json trace = nlohmann::json::parse(file);
  std::remove(path.c_str());
  return trace;
}

TEST(TimelineTest, SpansKeepLaneNameAndTime) {
  Timeline timeline(10);
  timeline.Add("gpu", "attention", 3, 5'000, 9'500);
  timeline.Add("engine", "plan", -1, 2'000, 3'000);
  const nlohmann::json trace = Written(timeline);
  std::map<int, std::string> lanes;
  std::map<std::string, nlohmann::json> spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X") spans[event["name"]] = event;
  }
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(lanes[spans["attention 3"]["tid"]], "gpu");
  EXPECT_EQ(lanes[spans["plan"]["tid"]], "engine");
  EXPECT_DOUBLE_EQ(spans["attention 3"]["ts"], 3.0);
  EXPECT_DOUBLE_EQ(spans["attention 3"]["dur"], 4.5);
  EXPECT_DOUBLE_EQ(spans["plan"]["ts"], 0.0);
}

TEST(TimelineTest, StopsAtItsLimit) {
  Timeline timeline(2);
  for (int i = 0; i < 5; ++i) timeline.Add("gpu", "iteration", i, i * 10, i * 10 + 5);
  EXPECT_FALSE(timeline.on());
  EXPECT_EQ(Written(timeline)["traceEvents"].size(), 2U + 1U + 1U);  // spans, one lane, the process
}

TEST(TimelineTest, KeepsTheLastIterationWhileWatched) {
  Timeline timeline(0);
  timeline.Add("gpu", "attention", 0, 0, 5);
  timeline.EndIteration();
  EXPECT_TRUE(timeline.LastIteration().empty());
  { const TimelineScope scope(&timeline, "engine", "plan"); }
  timeline.Watch(true);
  timeline.Add("gpu", "attention", 1, 10, 15);
  timeline.EndIteration();
  timeline.Add("gpu", "attention", 2, 20, 25);
  timeline.Add("engine", "plan", -1, 21, 22);
  ASSERT_EQ(timeline.LastIteration().size(), 1U);
  EXPECT_EQ(timeline.LastIteration()[0].name, "attention 1");
  timeline.EndIteration();
  ASSERT_EQ(timeline.LastIteration().size(), 2U);
  EXPECT_EQ(timeline.LastIteration()[1].lane, "engine");
  timeline.Watch(false);
  EXPECT_FALSE(timeline.on());
  EXPECT_TRUE(timeline.LastIteration().empty());
}

TEST(TimelineTest, AFileAndAWatcherDoNotDisturbEachOther) {
  Timeline timeline(2);
  timeline.Add("gpu", "iteration", 0, 0, 5);
  timeline.Watch(true);
  for (int i = 1; i < 5; ++i) timeline.Add("gpu", "iteration", i, i * 10, i * 10 + 5);
  timeline.EndIteration();
  EXPECT_EQ(timeline.LastIteration().size(), 4U);
  EXPECT_TRUE(timeline.on());
  timeline.Watch(false);
  EXPECT_FALSE(timeline.on());
  EXPECT_EQ(Written(timeline)["traceEvents"].size(), 2U + 1U + 1U);
}

TEST(TimelineTest, UnwritablePathIsAnError) {
  const Status written = Timeline(1).WriteChromeTrace("/no/such/folder/timeline.json");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_NE(written.error().message.find("/no/such/folder/timeline.json"), std::string::npos);
}

TEST(TimelineTest, ScopeWithoutTimelineDoesNothing) {
  Timeline timeline(4);
  { const TimelineScope scope(&timeline, "engine", "plan"); }
  { const TimelineScope scope(nullptr, "engine", "plan"); }
  EXPECT_EQ(Written(timeline)["traceEvents"].size(), 3U);
}

}  // namespace
}  // namespace tandem
