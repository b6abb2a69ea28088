#include "bench/online_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/sanitizers.h"

namespace tandem {
namespace {

using testing::HasSubstr;

OnlinePlan MustPlan(const OnlinePlanOptions& options) {
  auto plan = PlanOnlineBench(options);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->times_s.size(), plan->workload.requests.size());
  EXPECT_TRUE(std::is_sorted(plan->times_s.begin(), plan->times_s.end()));
  return std::move(plan).value();
}

OnlinePlanOptions AtRate(double rate) {
  OnlinePlanOptions options;
  options.workload = "synthetic:in=100,out=10";
  options.arrivals.rate = rate;
  return options;
}

TEST(OnlinePlan, HasAThousandRequestsUnlessItIsTold) {
  const OnlinePlan plan = MustPlan(AtRate(10));
  EXPECT_EQ(plan.times_s.size(), 1000U);
  EXPECT_NEAR(plan.span_s, 100, 15);
  EXPECT_EQ(plan.workload.requests[7].arrival_s, plan.times_s[7]);
  OnlinePlanOptions few = AtRate(10);
  few.num_requests = 3;
  EXPECT_EQ(MustPlan(few).times_s.size(), 3U);
}

TEST(OnlinePlan, ADurationIsFilledAndCutOff) {
  OnlinePlanOptions options = AtRate(100);
  options.duration_s = 50;
  const OnlinePlan plan = MustPlan(options);
  EXPECT_NEAR(static_cast<double>(plan.times_s.size()), 5000, 300);
  EXPECT_LT(plan.times_s.back(), 50);
  EXPECT_GT(plan.times_s.back(), 49);
  EXPECT_EQ(plan.span_s, 50);
  // The same as a longer plan begins.
  options.duration_s = 5;
  const OnlinePlan shorter = MustPlan(options);
  ASSERT_LT(shorter.times_s.size(), plan.times_s.size());
  EXPECT_EQ(shorter.times_s.back(), plan.times_s[shorter.times_s.size() - 1]);
  EXPECT_EQ(shorter.workload.requests[9].prompt_tokens, plan.workload.requests[9].prompt_tokens);
}

TEST(OnlinePlan, FewRequestsEndBeforeTheDuration) {
  OnlinePlanOptions options = AtRate(10);
  options.arrivals.kind = ArrivalKind::kConstant;
  options.num_requests = 20;
  options.duration_s = 60;
  EXPECT_DOUBLE_EQ(MustPlan(options).span_s, 2);
  // With a limit of concurrency they may be sent as long as there is time.
  options.max_concurrency = 2;
  EXPECT_DOUBLE_EQ(MustPlan(options).span_s, 60);
}

TEST(OnlinePlan, AllAtOnceNeedsACount) {
  OnlinePlanOptions options = AtRate(std::numeric_limits<double>::infinity());
  options.duration_s = 5;
  const OnlinePlan plan = MustPlan(options);
  EXPECT_EQ(plan.times_s.size(), 1000U);
  EXPECT_EQ(plan.span_s, 0);
}

TEST(OnlinePlan, WhatIsTooLongIsLeftOutAndCountedUpToTheEnd) {
  constexpr double kDuration = kSanitized ? 10 : 20;
  OnlinePlanOptions options = AtRate(100);
  options.duration_s = kDuration;
  options.max_model_len = 110;
  const OnlinePlan plan = MustPlan(options);
  EXPECT_NEAR(static_cast<double>(plan.times_s.size()), 100 * kDuration, 10 * kDuration)
      << "the rate is that of what is sent";
  for (const WorkloadRequest& request : plan.workload.requests)
    EXPECT_LE(request.prompt_tokens + request.output_tokens, 110);
  // Prompts of 90 to 110 and outputs of 9 to 11 tokens: 30 of 63 pairs fit.
  EXPECT_NEAR(static_cast<double>(plan.workload.num_dropped) / static_cast<double>(plan.times_s.size()),
              33.0 / 30.0, kSanitized ? 0.25 : 0.15);
  options.max_model_len = 50;
  const auto none = PlanOnlineBench(options);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("longer than the context of 50 tokens"));
}

TEST(OnlinePlan, ATraceKeepsItsTimes) {
  OnlinePlanOptions options;
  options.workload = "azure-conv";
  options.arrivals.time_scale = 0.5;
  options.num_requests = 3;
  const OnlinePlan plan = MustPlan(options);
  EXPECT_DOUBLE_EQ(plan.times_s[1], 4.315 / 2);
  EXPECT_EQ(plan.workload.requests[1].prompt_tokens, 396);
  options.workload = "osc";
  const auto none = PlanOnlineBench(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().param, "arrivals");
}

TEST(OnlinePlan, SessionsArriveAndTheirTurnsFollow) {
  OnlinePlanOptions options;
  options.workload = "agents:system=100,turns=3,user=20,tool=20,out=10";
  options.arrivals.rate = 2;
  options.duration_s = 100;
  const auto plan = PlanOnlineBench(options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const size_t num_sessions = plan->times_s.size();
  EXPECT_NEAR(static_cast<double>(num_sessions), 200, 50);
  EXPECT_LT(plan->times_s.back(), 100);
  ASSERT_EQ(plan->workload.requests.size(), 3 * num_sessions);
  EXPECT_EQ(plan->workload.requests[3].arrival_s, plan->times_s[1]);
  EXPECT_FALSE(plan->workload.requests[4].arrival_s.has_value()) << "nobody knows when it is due";
  options.workload += ",sessions=5";
  EXPECT_EQ(PlanOnlineBench(options)->times_s.size(), 5U);
  options.workload += "0";
  options.max_model_len = 190;
  const auto some = PlanOnlineBench(options);
  ASSERT_TRUE(some.ok()) << some.error().message;
  EXPECT_GT(some->workload.num_dropped, 0);
  // Those behind the last that fits are not counted.
  EXPECT_NEAR(static_cast<double>(std::ssize(some->times_s) + some->workload.num_dropped), 50, 5);
  EXPECT_EQ(some->workload.requests.size(), 3 * some->times_s.size());
  options.max_model_len = 100;
  EXPECT_THAT(PlanOnlineBench(options).error().message, HasSubstr("all 50 sessions of agents:"));
  options.arrivals = {.kind = ArrivalKind::kTrace, .rate = {}, .time_scale = {}};
  options.max_model_len = {};
  EXPECT_EQ(PlanOnlineBench(options).error().param, "arrivals");
}

}  // namespace
}  // namespace tandem
