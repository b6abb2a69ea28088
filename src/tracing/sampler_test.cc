#include "tracing/sampler.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

Sampler MakeSampler(std::string_view name, std::string_view argument = {}) {
  auto sampler = Sampler::Make(name, argument);
  EXPECT_TRUE(sampler.ok()) << sampler.error().message;
  return *sampler;
}

int NumSampled(const Sampler& sampler, const std::optional<TraceContext>& parent) {
  int count = 0;
  for (int i = 0; i < 1000; ++i) count += sampler.Samples(NewTraceId(), parent) ? 1 : 0;
  return count;
}

TraceContext Parent(bool sampled) {
  return {.trace_id = NewTraceId(), .span_id = NewSpanId(), .sampled = sampled};
}

TEST(Sampler, AParentDecidesOnlyForThoseThatAskIt) {
  struct Case {
    const char* name;
    int without;
    int below_sampled;
    int below_unsampled;
  };
  for (const Case& each :
       {Case{"always_on", 1000, 1000, 1000}, Case{"always_off", 0, 0, 0},
        Case{"parentbased_always_on", 1000, 1000, 0}, Case{"parentbased_always_off", 0, 1000, 0}}) {
    const Sampler sampler = MakeSampler(each.name);
    EXPECT_EQ(NumSampled(sampler, std::nullopt), each.without) << each.name;
    EXPECT_EQ(NumSampled(sampler, Parent(true)), each.below_sampled) << each.name;
    EXPECT_EQ(NumSampled(sampler, Parent(false)), each.below_unsampled) << each.name;
  }
}

TEST(Sampler, ARatioIsOfTheTraces) {
  EXPECT_NEAR(NumSampled(MakeSampler("traceidratio", "0.25"), std::nullopt), 250, 100);
  EXPECT_NEAR(NumSampled(MakeSampler("traceidratio", "0.25"), Parent(false)), 250, 100);
  EXPECT_EQ(NumSampled(MakeSampler("traceidratio", "0"), std::nullopt), 0);
  EXPECT_EQ(NumSampled(MakeSampler("traceidratio", "1.0"), std::nullopt), 1000);
  EXPECT_EQ(NumSampled(MakeSampler("traceidratio"), std::nullopt), 1000);
  EXPECT_NEAR(NumSampled(MakeSampler("parentbased_traceidratio", "0.25"), std::nullopt), 250, 100);
  EXPECT_EQ(NumSampled(MakeSampler("parentbased_traceidratio", "0.25"), Parent(true)), 1000);
  EXPECT_EQ(NumSampled(MakeSampler("parentbased_traceidratio", "0.25"), Parent(false)), 0);
}

TEST(Sampler, ARatioDecidesTheSameEverywhere) {
  TraceId trace{};
  trace[0] = 0xff;  // the first half has no say
  trace[8] = 0x3f;
  EXPECT_TRUE(MakeSampler("traceidratio", "0.25").Samples(trace, std::nullopt));
  trace[8] = 0x40;
  EXPECT_FALSE(MakeSampler("traceidratio", "0.25").Samples(trace, std::nullopt));
}

TEST(Sampler, ErrorsNameTheVariable) {
  EXPECT_EQ(Sampler::Make("sometimes", "").error().param, "OTEL_TRACES_SAMPLER");
  EXPECT_EQ(Sampler::Make("parentbased_", "").error().param, "OTEL_TRACES_SAMPLER");
  for (const char* bad : {"-1", "1.1", "x", "0.5x", "nan"}) {
    const auto sampler = Sampler::Make("traceidratio", bad);
    ASSERT_FALSE(sampler.ok()) << bad;
    EXPECT_EQ(sampler.error().param, "OTEL_TRACES_SAMPLER_ARG");
  }
}

}  // namespace
}  // namespace tandem
