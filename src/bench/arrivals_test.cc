#include "bench/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<WorkloadRequest> Requests(size_t count) {
  return std::vector<WorkloadRequest>(count, {.prompt_tokens = 1, .output_tokens = 1, .arrival_s = {}});
}

std::vector<WorkloadRequest> Trace(const std::vector<double>& times_s) {
  std::vector<WorkloadRequest> requests;
  requests.reserve(times_s.size());
  for (const double time_s : times_s)
    requests.push_back({.prompt_tokens = 1, .output_tokens = 1, .arrival_s = time_s});
  return requests;
}

std::vector<double> MustSchedule(const std::vector<WorkloadRequest>& requests, const ArrivalOptions& options,
                                 uint64_t seed = 0) {
  const auto plan = PlanArrivals(options);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  auto times_s = ArrivalTimes(requests, *plan, seed);
  EXPECT_TRUE(times_s.ok()) << times_s.error().message;
  return std::move(times_s).value();
}

TEST(Arrivals, PoissonGapsAreExponential) {
  const auto times_s = MustSchedule(Requests(40001), {.kind = {}, .rate = 8.0, .time_scale = {}}, 7);
  EXPECT_EQ(times_s.front(), 0);
  EXPECT_TRUE(std::is_sorted(times_s.begin(), times_s.end()));
  EXPECT_NEAR(times_s.back() / 40000, 1.0 / 8, 0.002);
  double squares = 0;
  int64_t num_long = 0;
  for (size_t i = 1; i < times_s.size(); ++i) {
    const double gap_s = times_s[i] - times_s[i - 1];
    squares += gap_s * gap_s;
    if (gap_s > 2.0 / 8) ++num_long;
  }
  EXPECT_NEAR(squares / 40000, 2.0 / 64, 0.001) << "the mean square of an exponential is twice its mean's";
  EXPECT_NEAR(static_cast<double>(num_long) / 40000, std::exp(-2.0), 0.005);
}

TEST(Arrivals, AreAFunctionOfTheSeedAndOfWhatCameBefore) {
  const ArrivalOptions options{.kind = ArrivalKind::kPoisson, .rate = 3.0, .time_scale = {}};
  const auto times_s = MustSchedule(Requests(100), options, 5);
  EXPECT_EQ(times_s, MustSchedule(Requests(100), options, 5));
  EXPECT_NE(times_s, MustSchedule(Requests(100), options, 6));
  auto longer = MustSchedule(Requests(200), options, 5);
  longer.resize(100);
  EXPECT_EQ(times_s, longer);
}

TEST(Arrivals, ConstantAndAllAtOnce) {
  EXPECT_THAT(MustSchedule(Requests(4), {.kind = ArrivalKind::kConstant, .rate = 4.0, .time_scale = {}}),
              ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_THAT(MustSchedule(Requests(5), {.kind = {}, .rate = kInfinity, .time_scale = {}}), Each(0));
  EXPECT_THAT(MustSchedule(Requests(5), {}), Each(0)) << "the default";
}

TEST(Arrivals, ATraceKeepsItsTimesScaled) {
  const auto trace = Trace({2, 3, 3, 6});
  EXPECT_THAT(MustSchedule(trace, {.kind = ArrivalKind::kTrace, .rate = {}, .time_scale = {}}),
              ElementsAre(0, 1, 1, 4));
  EXPECT_THAT(MustSchedule(trace, {.kind = {}, .rate = {}, .time_scale = 0.5}), ElementsAre(0, 0.5, 0.5, 2));
  // Three gaps in four seconds become three in half a second.
  EXPECT_THAT(MustSchedule(trace, {.kind = ArrivalKind::kTrace, .rate = 6.0, .time_scale = {}}),
              ElementsAre(0, 0.125, 0.125, 0.5));
  EXPECT_THAT(MustSchedule(Trace({9}), {.kind = ArrivalKind::kTrace, .rate = 6.0, .time_scale = {}}),
              ElementsAre(0));
}

TEST(Arrivals, TheSpanEndsAMeanGapAfterTheLast) {
  EXPECT_DOUBLE_EQ(ArrivalSpan({0, 1, 2, 3}), 4);
  EXPECT_DOUBLE_EQ(ArrivalSpan({0, 0, 0}), 0);
  EXPECT_DOUBLE_EQ(ArrivalSpan({0}), 0);
}

TEST(Arrivals, ErrorsNameTheFlag) {
  struct Case {
    ArrivalOptions options;
    const char* param;
    const char* text;
  };
  for (const Case& bad :
       {Case{{.kind = {}, .rate = 0.0, .time_scale = {}}, "rate", "0 is no number of requests a second"},
        Case{{.kind = {}, .rate = std::nan(""), .time_scale = {}}, "rate", "nan is no number"},
        Case{{.kind = {}, .rate = {}, .time_scale = -1.0}, "time-scale", "-1 is no factor"},
        Case{{.kind = ArrivalKind::kPoisson, .rate = 1.0, .time_scale = 2.0},
             "time-scale",
             "the arrivals are poisson"},
        Case{{.kind = {}, .rate = 1.0, .time_scale = 2.0}, "time-scale", "not both"},
        Case{{.kind = ArrivalKind::kTrace, .rate = kInfinity, .time_scale = {}},
             "rate",
             "no infinite rate"}}) {
    const auto plan = PlanArrivals(bad.options);
    ASSERT_FALSE(plan.ok()) << bad.text;
    EXPECT_EQ(plan.error().param, bad.param);
    EXPECT_THAT(plan.error().message, HasSubstr(bad.text));
  }
}

TEST(Arrivals, AWorkloadWithoutTimesHasNoTrace) {
  const auto times_s = ArrivalTimes(Requests(3), {.kind = ArrivalKind::kTrace}, 0);
  ASSERT_FALSE(times_s.ok());
  EXPECT_EQ(times_s.error().param, "arrivals");
  EXPECT_THAT(times_s.error().message, HasSubstr("no times of its own"));
  const auto same = ArrivalTimes(Trace({5, 5}), {.kind = ArrivalKind::kTrace, .trace_rate = 1.0}, 0);
  ASSERT_FALSE(same.ok());
  EXPECT_EQ(same.error().param, "rate");
}

}  // namespace
}  // namespace tandem
