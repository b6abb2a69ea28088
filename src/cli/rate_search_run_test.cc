#include "cli/rate_search_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/result.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

BenchOnlineOptions SearchFrom(double rate) {
  BenchOnlineOptions options;
  options.workload = "synthetic:in=10,out=20";
  options.arrivals.rate = rate;
  options.run.duration_s = 30;
  options.engine.seed = 7;
  options.find_rate_at_latency_s = 0.5;
  return options;
}

ordered_json ReportOf(double latency_s, int failed = 0) {
  return {{"mean_per_token_latency_s", latency_s},
          {"failed", failed},
          {"rejected", 0},
          {"output_throughput", 1.0}};
}

TEST(RateSearchRun, RunsUntilTheRateIsKnown) {
  std::set<uint64_t> seeds;
  const auto report = FindRateAtLatency(SearchFrom(1), [&](const BenchOnlineOptions& once) {
    EXPECT_TRUE(seeds.insert(once.prompt_seed.value()).second) << "a server would know these prompts";
    EXPECT_EQ(once.engine.seed, 7U) << "the same lengths and gaps, closer together";
    EXPECT_EQ(once.run.deadline_s, 60);
    // 0.5 s a token at 9 requests a second.
    return Result<ordered_json>(ReportOf(0.05 * *once.arrivals.rate + 0.05));
  });
  ASSERT_TRUE(report.ok());
  EXPECT_NEAR((*report)["highest_rate"].get<double>(), 9, 1e-6);
  EXPECT_EQ((*report)["runs"].size(), seeds.size());
  EXPECT_THAT(FormatRateSearch(*report), HasSubstr("9 requests/s at 0.5 s a token"));
}

TEST(RateSearchRun, WhoIsNotAnsweredIsBeyondTheLimit) {
  const auto report =
      FindRateAtLatency(SearchFrom(8), [&](const BenchOnlineOptions& once) -> Result<ordered_json> {
        if (*once.arrivals.rate > 4)
          return MakeError(ErrorCode::kUnavailable, "none of 9 requests was completed");
        return ReportOf(0.1, *once.arrivals.rate > 2 ? 1 : 0);
      });
  ASSERT_TRUE(report.ok());
  EXPECT_LE((*report)["highest_rate"].get<double>(), 2.0);
  EXPECT_GT((*report)["rate_beyond"].get<double>(), 2.0);
  EXPECT_EQ((*report)["runs"][0]["error"], "none of 9 requests was completed");
  EXPECT_THAT(FormatRateSearch(*report), HasSubstr("not all"));
}

TEST(RateSearchRun, SaysWhereNoRateIsSlowEnough) {
  const auto report = FindRateAtLatency(
      SearchFrom(1), [](const BenchOnlineOptions&) { return Result<ordered_json>(ReportOf(3.0)); });
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE((*report)["highest_rate"].is_null());
  EXPECT_THAT(FormatRateSearch(*report), HasSubstr("no rate kept to 0.5 s a token"));
}

TEST(RateSearchRun, OtherErrorsEndIt) {
  int num_runs = 0;
  const auto report =
      FindRateAtLatency(SearchFrom(1), [&](const BenchOnlineOptions&) -> Result<ordered_json> {
        ++num_runs;
        return MakeError(ErrorCode::kResourceExhausted, "too few open files");
      });
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(num_runs, 1);
}

}  // namespace
}  // namespace tandem
