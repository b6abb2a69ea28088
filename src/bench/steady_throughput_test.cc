#include "bench/steady_throughput.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace tandem {
namespace {

using std::chrono::milliseconds;

RequestRecord Completed(Clock::time_point start, int64_t first_token_ms, std::vector<float> gaps_ms) {
  RequestRecord record;
  record.prompt_tokens = 50;
  record.start = start;
  record.first_token = start + milliseconds(first_token_ms);
  record.output_tokens = static_cast<int64_t>(gaps_ms.size()) + 1;
  record.inter_token_ms = std::move(gaps_ms);
  record.ended = true;
  return record;
}

TEST(SteadyThroughput, LeavesOutSlowBeginningsAndEnds) {
  // Four rows, a token each 10 ms for 60 iterations in the middle, 1 s for each of 20 before and 20 behind.
  std::vector<float> gaps_ms(99, 10.0F);
  for (size_t i = 0; i < 19; ++i) gaps_ms[i] = 1000.0F;
  for (size_t i = 80; i < 99; ++i) gaps_ms[i] = 1000.0F;
  const std::vector<RequestRecord> records(4, Completed(Clock::now(), 1000, gaps_ms));
  const auto steady = MeasureSteadyThroughput(records);
  ASSERT_TRUE(steady.has_value());
  EXPECT_NEAR(steady->output_tokens_per_s, 400, 0.5);
  // All prompts were done at the very start.
  EXPECT_EQ(steady->prefill_share, 0);
}

TEST(SteadyThroughput, RequestsThatFollowEachOtherBringTheirPrompts) {
  const Clock::time_point start = Clock::now();
  std::vector<RequestRecord> records;
  for (int64_t i = 0; i < 100; ++i) {
    records.push_back(Completed(start, 100 * i, std::vector<float>(9, 10.0F)));
  }
  const auto steady = MeasureSteadyThroughput(records);
  ASSERT_TRUE(steady.has_value());
  EXPECT_NEAR(steady->output_tokens_per_s, 100, 0.5);
  EXPECT_NEAR(steady->prefill_share, 1, 0.03);
}

TEST(SteadyThroughput, CountsCompletedRequestsOnly) {
  std::vector<RequestRecord> records(2, Completed(Clock::now(), 10, std::vector<float>(99, 10.0F)));
  records[0].error = "out of paper";
  EXPECT_NEAR(MeasureSteadyThroughput(records)->output_tokens_per_s, 100, 0.1);
}

TEST(SteadyThroughput, OneMomentIsNoTime) {
  EXPECT_FALSE(MeasureSteadyThroughput({}).has_value());
  const std::vector<RequestRecord> records(20, Completed(Clock::now(), 10, {}));
  EXPECT_FALSE(MeasureSteadyThroughput(records).has_value());
}

}  // namespace
}  // namespace tandem
