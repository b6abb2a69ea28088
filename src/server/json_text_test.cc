#include "server/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

std::string Problem(const std::string& text) {
  const auto parsed = ParseJson(text);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(JsonText, ParsesAndKeepsTheLastOfDuplicateKeys) {
  const auto parsed = ParseJson(R"({"b":1,"a":[true,null],"b":2})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ((*parsed)["b"], 2);
  EXPECT_EQ(parsed->begin().key(), "b");
}

TEST(JsonText, RefusesBrokenText) {
  for (const char* text : {"", "{", "{]", "nul", "{\"a\":}", "[1,]", "{} x", "\"\\x\"", "NaN", "[Infinity]",
                           "1e999", "\"\xff\"", "{\"a\":\"\xc3\x28\"}", "\"\xed\xa0\x80\""}) {
    EXPECT_NE(Problem(text).find("not valid JSON"), std::string::npos) << text;
  }
}

TEST(JsonText, BoundsDepth) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(Problem(deep), "");
  EXPECT_NE(Problem("[" + deep + "]").find("deeper than 64"), std::string::npos);
  EXPECT_NE(Problem(std::string(8'000'000, '[')).find("deeper"), std::string::npos);
  EXPECT_EQ(Problem("\"" + std::string(1000, '[') + "\\\"[\""), "");
}

TEST(JsonText, BoundsMembers) {
  std::string many = "{\"k\":0";
  for (int i = 0; i < 20'000; ++i) many += ",\"" + std::to_string(i) + "\":1";
  EXPECT_NE(Problem(many + "}").find("too many members"), std::string::npos);
}

TEST(JsonText, StringsAreAlwaysValidUtf8) {
  std::string out;
  AppendJsonString("plain", &out);
  AppendJsonString("a\"\n\xff", &out);
  EXPECT_EQ(out, "\"plain\"\"a\\\"\\n\xef\xbf\xbd\"");
}

TEST(JsonText, CountsCodePoints) {
  EXPECT_EQ(CountCodePoints("a\xc3\xa9\xf0\x9f\x98\x80"), 3);
}

}  // namespace
}  // namespace tandem
