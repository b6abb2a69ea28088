#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tandem {
namespace {

TEST(StopStringMatcher, WithoutStopStringsEverythingPasses) {
  StopStringMatcher matcher({});
  EXPECT_EQ(matcher.Append("abc").text, "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStringMatcher, FindsAStopStringAcrossBorders) {
  StopStringMatcher matcher({"\nUser:"});
  EXPECT_EQ(matcher.Append("Hi.").text, "Hi.");
  EXPECT_EQ(matcher.Append("\nUs").text, "");
  const auto output = matcher.Append("er: more");
  EXPECT_TRUE(output.stopped);
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.matched, "\nUser:");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_TRUE(matcher.Append("x").stopped);
  EXPECT_EQ(matcher.Append("x").text, "");
}

TEST(StopStringMatcher, ReleasesWhatTurnsOutHarmless) {
  StopStringMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Append("aa").text, "");
  // "aaa": the last two may still begin a match.
  EXPECT_EQ(matcher.Append("a").text, "a");
  EXPECT_EQ(matcher.Append("c").text, "aac");
  EXPECT_EQ(matcher.Append("xa").text, "x");
  EXPECT_EQ(matcher.Flush(), "a");
}

TEST(StopStringMatcher, TheMatchThatEndsFirstWins) {
  StopStringMatcher matcher({"abcd", "bc"});
  const auto output = matcher.Append("xabcd");
  EXPECT_EQ(output.text, "xa");
  EXPECT_EQ(output.matched, "bc");
}

TEST(StopStringMatcher, OfMatchesWithTheSameEndTheLongestWins) {
  StopStringMatcher matcher({"c", "abc", "", "bc"});
  const auto output = matcher.Append("xabc");
  EXPECT_EQ(output.text, "x");
  EXPECT_EQ(output.matched, "abc");
}

TEST(StopStringMatcher, HoldsBackWholeCharactersOnly) {
  // U+00E9 and U+00E8 share their first byte.
  StopStringMatcher matcher({"\xC3\xA9"});
  EXPECT_EQ(matcher.Append("\xC3\xA8").text, "\xC3\xA8");
  EXPECT_EQ(matcher.Append("a\xC3\xA9").text, "a");
}

// What a scan of the whole text finds: the smallest end, then the longest.
std::optional<std::pair<size_t, std::string>> Scan(const std::string& text,
                                                   const std::vector<std::string>& stops) {
  for (size_t end = 0; end <= text.size(); ++end) {
    std::optional<std::pair<size_t, std::string>> best;
    for (const std::string& stop : stops)
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (!best || stop.size() > best->second.size()))
        best = {end - stop.size(), stop};
    if (best) return best;
  }
  return std::nullopt;
}

TEST(StopStringMatcher, EqualsAScanOfTheWholeTextHoweverItIsCut) {
  std::mt19937 random(3);
  const auto random_text = [&random](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + random() % 2));
    return text;
  };
  int num_stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = random_text(random() % 9);
    const std::string text = random_text(random() % 60);
    const auto expected = Scan(text, stops);
    StopStringMatcher matcher(stops);
    std::string shown;
    std::string matched;
    bool stopped = false;
    for (size_t pos = 0; pos < text.size() && !stopped;) {
      const size_t length = 1 + random() % 5;
      const auto output = matcher.Append(std::string_view(text).substr(pos, length));
      pos += length;
      shown += output.text;
      stopped = output.stopped;
      matched = output.matched;
    }
    ASSERT_EQ(stopped, expected.has_value());
    if (stopped) {
      ++num_stopped;
      ASSERT_EQ(shown, text.substr(0, expected->first));
      ASSERT_EQ(matched, expected->second);
    }
    ASSERT_EQ(shown + matcher.Flush(), stopped ? text.substr(0, expected->first) : text);
  }
  EXPECT_GT(num_stopped, 500);
}

}  // namespace
}  // namespace tandem
