#include "load/load_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

// Under a test runner stderr is captured into a file, so these see the plain lines.
TEST(LoadProgressTest, PlainLinesOncePerTenth) {
  testing::internal::CaptureStderr();
  {
    LoadProgress progress("Loading weights", uint64_t{1000} << 20);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&progress] {
        for (int i = 0; i < 250; ++i) progress.Add(uint64_t{1} << 20);
      });
    }
    for (std::thread& thread : threads) thread.join();
    progress.Finish();
    progress.Finish();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  // 10 % to 90 %, then the summary.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10) << text;
  EXPECT_THAT(text, HasSubstr("Loading weights: 10 %, 100.0 MiB of 1000.0 MiB"));
  EXPECT_THAT(text, HasSubstr("Loading weights: 1000.0 MiB in"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(LoadProgressTest, UnknownTotalAndTooManyBytes) {
  testing::internal::CaptureStderr();
  {
    LoadProgress unknown("Unknown", 0);
    unknown.Add(5);
    LoadProgress over("Over", 10);
    over.Add(1000);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

}  // namespace
}  // namespace tandem
