#include "bench/completion_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::HasSubstr;

CompletionEvent MustParse(std::string_view text) {
  auto event = ParseCompletionEvent(text);
  EXPECT_TRUE(event.ok()) << event.error().message;
  return std::move(event).value();
}

TEST(CompletionEvent, ATokenIsAChoiceWithText) {
  const CompletionEvent event = MustParse(
      R"({"id":"c","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null}],"usage":null})");
  EXPECT_TRUE(event.has_choice);
  EXPECT_TRUE(event.has_text);
  EXPECT_EQ(event.finish_reason, "");
  EXPECT_FALSE(event.completion_tokens.has_value());
  EXPECT_EQ(event.error, "");
}

TEST(CompletionEvent, TextThatLooksLikeTheFormatIsText) {
  const CompletionEvent event = MustParse(
      R"({"choices":[{"text":"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":9},\\\"error"}]})");
  EXPECT_TRUE(event.has_text);
  EXPECT_EQ(event.finish_reason, "");
  EXPECT_FALSE(event.completion_tokens.has_value());
  EXPECT_EQ(event.error, "");
  EXPECT_TRUE(MustParse(R"({"choices":[{"text":"\ud83d\ude00"}]})").has_text);
}

TEST(CompletionEvent, OnlyTheFieldsAtTheirPlacesCount) {
  const CompletionEvent event =
      MustParse(R"({"choices":[{"logprobs":{"text":"x","finish_reason":"x","tokens":["a"]},"text":"",)"
                R"("finish_reason":"length","stop_reason":null}],)"
                R"("usage":{"prompt_tokens":3,"details":{"completion_tokens":1},"completion_tokens":12},)"
                R"("timings":{"completion_tokens":77,"message":"m","text":"t"}})");
  EXPECT_TRUE(event.has_choice);
  EXPECT_FALSE(event.has_text);
  EXPECT_EQ(event.finish_reason, "length");
  EXPECT_EQ(event.completion_tokens, 12);
  EXPECT_EQ(event.error, "");
}

TEST(CompletionEvent, TheLastUsageHasNoChoice) {
  const CompletionEvent event =
      MustParse(R"({"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":2}})");
  EXPECT_FALSE(event.has_choice);
  EXPECT_EQ(event.completion_tokens, 4);
}

TEST(CompletionEvent, ErrorsAreTold) {
  EXPECT_EQ(MustParse(R"({"error":{"message":"no \"memory\"","code":5}})").error, "no \"memory\"");
  EXPECT_EQ(MustParse(R"({"error":"plain"})").error, "plain");
  EXPECT_NE(MustParse(R"({"error":{"code":5}})").error, "");
  EXPECT_EQ(MustParse(R"({"error":null,"choices":[]})").error, "");
}

TEST(CompletionEvent, WhatIsNoObjectIsAnError) {
  for (const char* text : {"", "[1]", "5", "{\"choices\":[", "{} {}", "[DONE]"}) {
    const auto event = ParseCompletionEvent(text);
    ASSERT_FALSE(event.ok()) << text;
    EXPECT_THAT(event.error().message, HasSubstr("no JSON object"));
  }
}

TEST(CompletionEvent, TokenIdsAndCachedTokensAreReadWhereTheyStand) {
  const CompletionEvent event = MustParse(
      R"({"choices":[{"prompt_token_ids":[1,2],"logprobs":{"token_ids":[3]},"token_ids":[7,8],"stop":[9]}],)"
      R"("usage":{"prompt_tokens":64,"completion_tokens":2,"cached_tokens":1,)"
      R"("prompt_tokens_details":{"cached_tokens":32}},"token_ids":[4]})");
  EXPECT_EQ(event.token_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(event.completion_tokens, 2);
  EXPECT_EQ(event.cached_tokens, 32);
  const CompletionEvent none =
      MustParse(R"({"choices":[{"token_ids":null}],"usage":{"prompt_tokens_details":null}})");
  EXPECT_TRUE(none.token_ids.empty());
  EXPECT_FALSE(none.cached_tokens.has_value());
}

TEST(CompletionEvent, ErrorBodiesOfSeveralServers) {
  EXPECT_EQ(ErrorMessageOf(R"({"error":{"message":"full","type":"x"}})"), "full");
  EXPECT_EQ(ErrorMessageOf(R"({"object":"error","message":"full"})"), "full");
  EXPECT_EQ(ErrorMessageOf(R"({"error":"full"})"), "full");
  EXPECT_EQ(ErrorMessageOf(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(ErrorMessageOf("Bad Gateway\r\n"), "Bad Gateway");
  EXPECT_EQ(ErrorMessageOf(R"({"error":5})"), R"({"error":5})");
  EXPECT_EQ(ErrorMessageOf(std::string(1000, 'x')).size(), 303U);
}

}  // namespace
}  // namespace tandem
