// Specs that are small and mean much: they are refused, and quickly.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/sanitizers.h"
#include "grammar/grammar_compiler.h"
#include "grammar/grammar_testing.h"

namespace tandem {
namespace {

using Kind = GrammarSpec::Kind;

constexpr std::chrono::seconds kQuickly{kSanitized ? 200 : 5};

std::string Times(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

class ExplosionTest : public testing::Test {
 protected:
  void ExpectRefused(Kind kind, const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = compiler_.CompileAndWait({.kind = kind, .text = text});
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_FALSE(grammar.ok()) << text.substr(0, 200);
    EXPECT_EQ(grammar.error().message.find("takes longer"), std::string::npos) << text.substr(0, 200);
    EXPECT_LT(took, kQuickly) << text.substr(0, 200);
  }

  // None is refused because its time is over.
  GrammarCompiler compiler_{SmallVocabulary(), {.max_compile_time = 2 * kQuickly}};
};

TEST_F(ExplosionTest, OfRegularExpressions) {
  ExpectRefused(Kind::kRegex, "((((a{100}){100}){100}){100}){100}");
  ExpectRefused(Kind::kRegex, "(a|b){1000000}");
  ExpectRefused(Kind::kRegex, "([a-z]{99}|x){9999}");
  ExpectRefused(Kind::kRegex, Times("(", 10'000) + Times(")", 10'000));
  ExpectRefused(Kind::kRegex, Times("(a|", 60) + Times(")", 60));
  ExpectRefused(Kind::kRegex, Times("[a-zA-Z ]", 10'000));
  ExpectRefused(Kind::kRegex, "a{2147483648,4294967297}");
}

TEST_F(ExplosionTest, OfSchemas) {
  ExpectRefused(Kind::kJsonSchema, R"({"type": "string", "minLength": 1000000000})");
  ExpectRefused(Kind::kJsonSchema, R"({"type": "string", "minLength": 5000})");
  ExpectRefused(Kind::kJsonSchema, R"({"type": "array", "minItems": 1000000})");
  std::string nested = R"({"type": "integer"})";
  for (int i = 0; i < 8; ++i)
    nested = fmt::format(
        R"({{"type": "array", "minItems": 50, "maxItems": 100, "items": {{"anyOf": [{0}, {0}]}}}})", nested);
  ExpectRefused(Kind::kJsonSchema, nested);
  ExpectRefused(Kind::kJsonSchema, Times(R"({"items":)", 90) + "true" + Times("}", 90));
  ExpectRefused(Kind::kJsonSchema, Times(R"({"items":)", 20'000) + "true" + Times("}", 20'000));
  ExpectRefused(Kind::kJsonSchema, Times("[", 200'000));
  ExpectRefused(Kind::kJsonSchema, std::string(size_t{1} << 20, ' ') + "{}");
  // Twice as many schemas with each reference.
  std::string definitions;
  for (int i = 0; i < 40; ++i)
    definitions += fmt::format(
        R"("d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}]}},)", i, i + 1, i + 1);
  ExpectRefused(Kind::kJsonSchema, R"({"$ref": "#/$defs/d0", "$defs": {)" + definitions +
                                       R"("d40": {"type": "integer", "not": {}}}})");
  if (kSanitized) return;  // what follows takes a sanitizer's build half a minute
  std::string keys;
  for (int i = 0; i < 2'500; ++i) keys += fmt::format(R"("k{}":{{}},)", i);
  ExpectRefused(Kind::kJsonSchema, R"({"properties": {)" + keys + R"("z": {}}})");
  std::string branches;
  for (int i = 0; i < 400; ++i) branches += fmt::format(R"({{"const": {}}},)", i);
  ExpectRefused(Kind::kJsonSchema, R"({"oneOf": [)" + branches + R"({"const": "z"}]})");
}

TEST_F(ExplosionTest, OfGrammars) {
  ExpectRefused(Kind::kEbnf, R"(root ::= (((("a"{100}){100}){100}){100}))");
  ExpectRefused(Kind::kEbnf, R"(root ::= "a"{4294967297})");
  ExpectRefused(Kind::kEbnf, "root ::= " + Times("(", 5000) + "\"a\"" + Times(")", 5000));
  ExpectRefused(Kind::kEbnf, "root ::= Regex(\"(a{1000}){1000}\")");
  ExpectRefused(Kind::kEbnf, "root ::= [a-z]" + Times("[^a]", 2000));
}

TEST_F(ExplosionTest, AndWhatIsNearTheLimitsCompiles) {
  EXPECT_TRUE(compiler_.CompileAndWait({.kind = Kind::kRegex, .text = "[a-z]{0,10000}x"}).ok());
  std::string properties;
  for (int i = 0; i < 300; ++i)
    properties += fmt::format(R"("property{}": {{"type": "string", "maxLength": {}}},)", i, 100 + i % 20);
  const auto grammar = compiler_.CompileAndWait(
      {.kind = Kind::kJsonSchema, .text = R"({"properties": {)" + properties + R"("z": {}}})"});
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
}

}  // namespace
}  // namespace tandem
