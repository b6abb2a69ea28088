#include "request/sampling_params.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tandem {
namespace {

TEST(SamplingParamsTest, DefaultsAndLimitsAreValid) {
  SamplingParams params;
  EXPECT_TRUE(params.Validate(100).ok());
  params = {
      .max_tokens = 1, .min_tokens = 1, .temperature = 2.0F, .top_p = 1e-6F, .top_k = -1, .min_p = 1.0F};
  params.stop_token_ids = {0, 99};
  params.logit_bias = {{99, -100.0F}, {0, 100.0F}};
  params.num_top_logprobs = 20;
  EXPECT_TRUE(params.Validate(100).ok());
}

TEST(SamplingParamsTest, EveryRangeIsCheckedAndNamed) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    SamplingParams params;
    const char* param;
  };
  const Case cases[] = {
      {{.max_tokens = 0}, "max_tokens"},
      {{.max_tokens = 4, .min_tokens = 5}, "min_tokens"},
      {{.min_tokens = -1}, "min_tokens"},
      {{.temperature = -0.1F}, "temperature"},
      {{.temperature = 2.1F}, "temperature"},
      {{.temperature = kNan}, "temperature"},
      {{.top_p = 0.0F}, "top_p"},
      {{.top_p = 1.1F}, "top_p"},
      {{.top_p = kNan}, "top_p"},
      {{.top_k = -2}, "top_k"},
      {{.min_p = 1.5F}, "min_p"},
      {{.presence_penalty = 2.5F}, "presence_penalty"},
      {{.frequency_penalty = -2.5F}, "frequency_penalty"},
      {{.repetition_penalty = 0.0F}, "repetition_penalty"},
      {{.repetition_penalty = kInf}, "repetition_penalty"},
      {{.stop_token_ids = {100}}, "stop_token_ids"},
      {{.logit_bias = {{-1, 0.0F}}}, "logit_bias"},
      {{.logit_bias = {{1, 101.0F}}}, "logit_bias"},
      {{.allowed_token_ids = {5, 100}}, "allowed_token_ids"},
      {{.allowed_token_ids = {-1}}, "allowed_token_ids"},
      {{.bad_words = {{1}, {}}}, "bad_words"},
      {{.bad_words = {{1, 100}}}, "bad_words"},
      {{.num_top_logprobs = 21}, "logprobs"},
      {{.num_prompt_top_logprobs = -2}, "logprobs"},
  };
  for (const Case& test_case : cases) {
    const Status status = test_case.params.Validate(100);
    ASSERT_FALSE(status.ok()) << test_case.param;
    EXPECT_EQ(status.error().param, test_case.param) << status.error().message;
  }
}

}  // namespace
}  // namespace tandem
