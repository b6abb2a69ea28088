#include "bench/strategy_choice.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(StrategyChoiceTest, NamesAndOptions) {
  const auto choices = ParseStrategyChoices("gpu-only,async:async-cohorts=1,async", 7);
  ASSERT_TRUE(choices.ok()) << choices.error().message;
  ASSERT_EQ(choices->size(), 3U);
  EXPECT_EQ((*choices)[0].name, "gpu-only");
  EXPECT_EQ((*choices)[1].name, "async");
  EXPECT_EQ((*choices)[1].text, "async:async-cohorts=1");
  EXPECT_EQ((*choices)[1].async_cohorts, 1);
  EXPECT_EQ((*choices)[2].async_cohorts, 7);
}

TEST(StrategyChoiceTest, SaysWhatIsWrong) {
  for (const char* text : {"", ",", "fastest", "async,async", "async:", "async:cohorts=1",
                           "async:async-cohorts=", "async:async-cohorts=1x", "async:async-cohorts=-1"}) {
    const auto choices = ParseStrategyChoices(text, 0);
    ASSERT_FALSE(choices.ok()) << text;
    EXPECT_EQ(choices.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(choices.error().param, "strategies");
  }
}

TEST(StrategyChoiceTest, AnEngineThatServesAll) {
  const auto for_all = [](const char* text) { return StrategyForAll(*ParseStrategyChoices(text, 0)); };
  EXPECT_EQ(for_all("gpu-only"), "gpu-only");
  EXPECT_EQ(for_all("gpu-only,asymmetric"), "asymmetric");
  EXPECT_EQ(for_all("gpu-only,asymmetric,auto"), "auto");
  EXPECT_EQ(for_all("auto,gpu-only,async,asymmetric"), "async");
}

}  // namespace
}  // namespace tandem
