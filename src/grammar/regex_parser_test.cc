#include "grammar/regex_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_compiler.h"
#include "grammar/grammar_testing.h"

namespace tandem {
namespace {

struct Case {
  const char* pattern;
  std::vector<std::string> taken;
  std::vector<std::string> not_taken;
};

TEST(RegexParser, TakesWhatTheExpressionMatchesAsAWhole) {
  const GrammarVocabulary vocabulary = SmallVocabulary();
  GrammarCompiler compiler(vocabulary, {});
  const std::vector<Case> cases = {
      {"abc", {"abc"}, {"ab", "abcd", "xabc"}},
      {"^abc$", {"abc"}, {"^abc$"}},
      {"^a|b$", {"a", "b"}, {"ab"}},
      {"(?:a|b)*c", {"c", "abac"}, {"ab"}},
      {"(?<name>x)(y)??", {"x", "xy"}, {"y"}},
      {"a{2}b{1,}c{0,2}", {"aab", "aabbcc"}, {"ab", "aac", "aabccc"}},
      {"[a-c-]+", {"a-b", "---"}, {"d", ""}},
      {"[^a-c\\d]", {"d", "é", "-"}, {"a", "1", "dd"}},
      {"\\d\\D\\w\\W\\s\\S", {"1a_- x"}, {"1a_-xx", "aaaaaa"}},
      {".", {"a", "é", "€", "\t"}, {"\n", "", "ab"}},
      {"[\\s\\S]", {"a", "\n"}, {""}},
      {"\\x41\\u00e9\\u{20AC}\\uD83D\\uDE00", {"Aé€😀"}, {"Aé€"}},
      {"\\.\\*\\[\\{\\/\\-", {".*[{/-"}, {"a"}},
      {"\\t\\n\\r\\f\\v\\0[\\b]", {std::string("\t\n\r\f\v\0\b", 7)}, {"t"}},
      {"é+", {"é", "éé"}, {"e", "\xC3"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"(a*)*", {"", "aaa"}, {"b"}},
      {"[a-z]{3,40}", {"abc", std::string(40, 'q')}, {"ab", std::string(41, 'q')}},
      {"x[a-z]{0,20}z",
       {"xz", "xzz", "x" + std::string(20, 'z') + "z"},
       {"x", "x" + std::string(21, 'z') + "z"}},
      {"([a-z]{0,12}-){2}", {"--", "abc-abcdefghijkl-"}, {"-", "abcdefghijklm--"}},
  };
  for (const Case& c : cases) {
    const auto grammar = compiler.CompileAndWait({.kind = GrammarSpec::Kind::kRegex, .text = c.pattern});
    ASSERT_TRUE(grammar.ok()) << c.pattern << ": " << grammar.error().message;
    for (const std::string& text : c.taken)
      EXPECT_TRUE(Takes(**grammar, vocabulary, text)) << c.pattern << " " << text;
    for (const std::string& text : c.not_taken)
      EXPECT_FALSE(Takes(**grammar, vocabulary, text)) << c.pattern << " " << text;
  }
}

TEST(RegexParser, NamesThePlaceOfAMistake) {
  const std::pair<const char*, const char*> cases[] = {
      {"a(b", "at byte 1 of the regular expression the `(` is not closed"},
      {"ab)", "at byte 2 of the regular expression the `)` closes nothing"},
      {"a[bc", "at byte 1 of the regular expression the `[` is not closed"},
      {"*a", "at byte 0 of the regular expression there is nothing to repeat"},
      {"a**", "at byte 2 of the regular expression a repetition is repeated"},
      {"a{", "at byte 1 of the regular expression `{` begins no repetition"},
      {"a{3,2}", "at byte 1 of the regular expression the bounds"},
      {"a{100001}", "at byte 1 of the regular expression a repetition of more than 100000 times"},
      {"[b-a]", "at byte 1 of the regular expression a range is in the wrong order"},
      {"[]", "at byte 0 of the regular expression a class has no character"},
      {"a\\", "at byte 1 of the regular expression a `\\` is followed by nothing"},
      {"a\\b", "at byte 1 of the regular expression word boundaries are not supported"},
      {"a(?=b)", "at byte 1 of the regular expression assertions"},
      {"a(?<!b)", "at byte 1 of the regular expression assertions"},
      {"(?i)a", "at byte 0 of the regular expression flags"},
      {"(a)\\1", "at byte 3 of the regular expression references"},
      {"\\p{L}", "at byte 0 of the regular expression the escape `\\p`"},
      {"a^b", "at byte 1 of the regular expression an anchor elsewhere"},
      {"(a$)+", "at byte 2 of the regular expression an anchor elsewhere"},
      {"^*", "at byte 0 of the regular expression an anchor is repeated"},
      {"\\uD800", "at byte 0 of the regular expression an escape is no character"},
      {"\\xg0", "at byte 0 of the regular expression an escape wants hexadecimal digits"},
      {"a\xFF", "at byte 1 of the regular expression there is no UTF-8"},
  };
  for (const auto& [pattern, message] : cases) {
    const auto expression = ParseRegex(pattern);
    ASSERT_FALSE(expression.ok()) << pattern;
    EXPECT_TRUE(expression.error().message.starts_with(message))
        << pattern << ": " << expression.error().message;
  }
}

TEST(RegexParser, KnowsHowLongTextsAre) {
  const auto lengths = [](const char* pattern) {
    const LengthRange range = Lengths(*ParseRegex(pattern));
    return std::pair(range.min, range.max);
  };
  EXPECT_EQ(lengths("ab?c{2,5}"), std::pair(int64_t{3}, int64_t{7}));
  EXPECT_EQ(lengths("^(é|abc)$"), std::pair(int64_t{1}, int64_t{3}));
  EXPECT_EQ(lengths("a+"), std::pair(int64_t{1}, Expression::kUnbounded));
  EXPECT_EQ(lengths("(a*){0}"), std::pair(int64_t{0}, int64_t{0}));
}

}  // namespace
}  // namespace tandem
