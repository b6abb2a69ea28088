#include "text/tokenizer/split_regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const auto regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.error().message;
  std::vector<std::string> matches;
  size_t pos = 0;
  while (const auto match = regex->Find(text, pos)) {
    matches.emplace_back(text.substr(match->begin, match->end - match->begin));
    pos = match->end;
  }
  return matches;
}

using Texts = std::vector<std::string>;

TEST(SplitRegex, SpaceIsUnicodeWhiteSpace) {
  // U+0085 and U+00A0 are, U+180E and U+001C are not.
  EXPECT_EQ(Matches(R"(\s+)", "a\u0085\u00a0b\u180e\x1c\u3000"), (Texts{"\u0085\u00a0", "\u3000"}));
  EXPECT_EQ(Matches(R"([^\S\r\n]+)", "a \t\n b"), (Texts{" \t", " "}));
}

TEST(SplitRegex, KnowsLettersOfUnicode16) {
  EXPECT_EQ(Matches(R"(\p{L}+)", "\U00010d50\u1c89"), (Texts{"\U00010d50\u1c89"}));
  EXPECT_EQ(Matches(R"([^\s\p{L}\p{N}]+)", "\U00010d50!\U00010d40"), (Texts{"!"}));
  EXPECT_EQ(Matches(R"(\P{N}+)", "1\U00010d40!"), (Texts{"!"}));
}

TEST(SplitRegex, IntervalWithPlusIsNotPossessive) {
  // In Ruby syntax a second quantifier: any number of digits.
  EXPECT_EQ(Matches(R"(\p{N}{1,3}+)", "1234567"), (Texts{"1234567"}));
  EXPECT_EQ(Matches(R"((?:ab){2}+c)", "ababababc"), (Texts{"ababababc"}));
  EXPECT_EQ(Matches(R"(\p{N}{1,3})", "1234567"), (Texts{"123", "456", "7"}));
}

TEST(SplitRegex, EmptyMatchesAreSkipped) {
  EXPECT_EQ(Matches("x*", "axxb\u00e9x"), (Texts{"xx", "x"}));
}

TEST(SplitRegex, LiteralsAreNotPatterns) {
  const SplitRegex regex = SplitRegex::Literal(".");
  const auto match = regex.Find("a.b", 0);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 1U);
}

TEST(SplitRegex, ConstructsOfOtherMeaningAreUnsupported) {
  for (const char* pattern : {R"(\h)", R"(\w)", R"([a[bc]])", "[a&&b]", "(?m:a)", "(?<name>a)",
                              R"(\p{Greek})", "a(?i)b", R"([\P{L}])", "[]", ")", R"(\p)", "[a"}) {
    const auto regex = SplitRegex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupported) << pattern;
  }
  for (const char* pattern : {"(a", "a{3,2}", "*"}) {
    const auto regex = SplitRegex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kMalformedFile) << pattern;
  }
}

TEST(SplitRegex, LongRunsDoNotExhaustTheStack) {
  const std::string text(2'000'000, ' ');
  EXPECT_EQ(Matches(R"((?:a| )+)", text).size(), 1U);
  EXPECT_EQ(Matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", text + "x").size(), 2U);
}

}  // namespace
}  // namespace tandem
