#include "bench/stream_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Clock::time_point kFirstEvent = Clock::now();

CompletionEvent Text(std::optional<int64_t> total = {}) {
  return {.has_choice = true, .has_text = true, .finish_reason = "", .completion_tokens = total, .error = ""};
}

CompletionEvent NoText(const char* finish_reason, std::optional<int64_t> total = {}) {
  return {.has_choice = true, .finish_reason = finish_reason, .completion_tokens = total, .error = ""};
}

CompletionEvent Usage(int64_t total) {
  return {.finish_reason = "", .completion_tokens = total, .error = ""};
}

// Milliseconds at which the tokens of events came, one event every 10 ms.
std::vector<int64_t> TokenTimes(const std::vector<CompletionEvent>& events) {
  StreamTokens tokens(4);
  Clock::time_point now = kFirstEvent;
  for (const CompletionEvent& event : events) tokens.Add(event, now += std::chrono::milliseconds(10));
  RequestRecorder recorder({{.prompt_tokens = 1, .output_tokens = 1, .arrival_s = {}}});
  recorder.Start(0, kFirstEvent);
  tokens.Report(0, &recorder);
  recorder.Cancel(0);
  const RequestRecord record = recorder.TakeRecords().front();
  std::vector<int64_t> times_ms;
  double time_ms = std::chrono::duration<double, std::milli>(record.first_token - kFirstEvent).count();
  for (int64_t i = 0; i < record.output_tokens; ++i) {
    if (i > 0) time_ms += static_cast<double>(record.inter_token_ms[static_cast<size_t>(i - 1)]);
    times_ms.push_back(std::llround(time_ms));
  }
  return times_ms;
}

TEST(StreamTokens, AnEventIsATokenIfNothingSaysOtherwise) {
  EXPECT_THAT(TokenTimes({Text(), Text(), Text()}), ElementsAre(10, 20, 30));
  EXPECT_THAT(TokenTimes({Text(), NoText(""), Text()}), ElementsAre(10, 20, 30));
  EXPECT_THAT(TokenTimes({}), IsEmpty());
}

TEST(StreamTokens, EventsSayHowManyThereAre) {
  EXPECT_THAT(TokenTimes({Text(1), NoText("", 2), Text(5), NoText("length", 6), Usage(6)}),
              ElementsAre(10, 20, 30, 30, 30, 40));
}

TEST(StreamTokens, TheLastUsageIsSpreadOverTheEvents) {
  EXPECT_THAT(TokenTimes({Text(), Text(), Text(), Usage(6)}), ElementsAre(10, 10, 20, 20, 30, 30));
  EXPECT_THAT(TokenTimes({Text(), Text(), Text(), Usage(4)}), ElementsAre(10, 10, 20, 30));
  EXPECT_THAT(TokenTimes({Text(), Text(), Text(), Text(), Usage(2)}), ElementsAre(10, 30))
      << "fewer tokens than events";
}

TEST(StreamTokens, AnEndWithoutTextIsATokenOnlyIfOneIsMissing) {
  EXPECT_THAT(TokenTimes({Text(), Text(), NoText("length"), Usage(2)}), ElementsAre(10, 20));
  EXPECT_THAT(TokenTimes({Text(), Text(), NoText("length"), Usage(3)}), ElementsAre(10, 20, 30));
  EXPECT_THAT(TokenTimes({Text(), Text(), NoText("length")}), ElementsAre(10, 20)) << "no usage";
  EXPECT_THAT(TokenTimes({NoText("length"), Usage(2)}), ElementsAre(10, 10));
  EXPECT_THAT(TokenTimes({Text(2), NoText("length"), Usage(2)}), ElementsAre(10, 10));
}

TEST(StreamTokens, SomeEventsSayHowMany) {
  EXPECT_THAT(TokenTimes({Text(), Text(4), Text(), Text(), Usage(6)}), ElementsAre(10, 10, 20, 20, 30, 40));
}

}  // namespace
}  // namespace tandem
