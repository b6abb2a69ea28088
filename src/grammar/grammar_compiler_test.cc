#include "grammar/grammar_compiler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "grammar/grammar_testing.h"

namespace tandem {
namespace {

using Kind = GrammarSpec::Kind;

class GrammarCompilerTest : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> Must(GrammarSpec spec) {
    auto grammar = compiler_.CompileAndWait(std::move(spec));
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return grammar.ok() ? grammar.value() : nullptr;
  }
  bool TakesText(const Grammar& grammar, std::string_view text) { return Takes(grammar, vocabulary_, text); }

  const GrammarVocabulary vocabulary_ = SmallVocabulary();
  GrammarCompiler compiler_{vocabulary_, {}};
};

TEST_F(GrammarCompilerTest, AnObjectIsAnObject) {
  const auto grammar = Must({.kind = Kind::kJsonObject});
  EXPECT_TRUE(TakesText(*grammar, R"({"a": [1, 2.5e3, null, {"b": "\u00e9é"}]})"));
  EXPECT_TRUE(TakesText(*grammar, "{}"));
  EXPECT_FALSE(TakesText(*grammar, "[]"));
  EXPECT_FALSE(TakesText(*grammar, "1"));
  EXPECT_FALSE(TakesText(*grammar, "{\"a\": 01}"));
  const AnswerDrawer drawer(vocabulary_);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto answer = drawer.Draw(*grammar, seed);
    ASSERT_EQ(answer.problem, "");
    ASSERT_TRUE(answer.has_ended) << answer.text;
    EXPECT_TRUE(nlohmann::json::parse(answer.text, nullptr, false).is_object()) << answer.text;
  }
}

TEST_F(GrammarCompilerTest, TheEndComesOnlyWhereTheAnswerMayEnd) {
  const auto grammar = Must({.kind = Kind::kRegex, .text = "ab?"});
  const auto state = grammar->Begin();
  const int32_t end = vocabulary_.end_tokens[0];
  TokenMask mask(NumMaskWords(vocabulary_.vocab_size));
  state->FillMask(mask);
  EXPECT_FALSE(IsInMask(mask, static_cast<size_t>(end)));
  EXPECT_FALSE(state->may_end());
  EXPECT_FALSE(state->Accept(end));
  EXPECT_FALSE(state->Accept('b'));
  EXPECT_TRUE(state->Accept('a'));
  EXPECT_TRUE(state->may_end());
  EXPECT_FALSE(state->ended());
  state->FillMask(mask);
  EXPECT_TRUE(IsInMask(mask, static_cast<size_t>(end)));
  EXPECT_TRUE(IsInMask(mask, 'b'));
  EXPECT_FALSE(IsInMask(mask, 'a'));
  EXPECT_TRUE(state->Accept(end));
  EXPECT_TRUE(state->ended());
  EXPECT_FALSE(state->Accept('b'));
  state->FillMask(mask);
  EXPECT_EQ(mask, TokenMask(mask.size(), ~0U));
}

TEST_F(GrammarCompilerTest, NoTokenBeyondTheTokenizerAndNoControlToken) {
  const auto grammar = Must({.kind = Kind::kRegex, .text = "(.|\\n)*"});
  const auto state = grammar->Begin();
  TokenMask mask(NumMaskWords(vocabulary_.vocab_size), ~0U);
  state->FillMask(mask);
  for (size_t id = vocabulary_.tokens.size(); id < mask.size() * 32; ++id)
    EXPECT_FALSE(IsInMask(mask, id)) << id;
  const auto tool = static_cast<size_t>(vocabulary_.end_tokens[0] - 1);
  EXPECT_FALSE(IsInMask(mask, tool));
  EXPECT_FALSE(state->Accept(static_cast<int32_t>(tool)));
  EXPECT_FALSE(state->Accept(static_cast<int32_t>(vocabulary_.tokens.size())));
  EXPECT_FALSE(state->Accept(-1));
  EXPECT_FALSE(state->Accept(1 << 30));
}

TEST_F(GrammarCompilerTest, ChoicesAreVerbatim) {
  const auto grammar = Must({.kind = Kind::kChoice, .choices = {"yes", "no", "a \"b\"\\\n\x01é", "ye"}});
  for (const char* text : {"yes", "no", "a \"b\"\\\n\x01é", "ye"})
    EXPECT_TRUE(TakesText(*grammar, text)) << text;
  for (const char* text : {"", "y", "yess", "No", "a"}) EXPECT_FALSE(TakesText(*grammar, text)) << text;
}

TEST_F(GrammarCompilerTest, ATagNamesItsControlTokens) {
  const auto grammar = Must({.kind = Kind::kStructuralTag, .text = R"({"type": "structural_tag", "format": {
      "type": "tag", "begin": "<|tool|>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
      "end": ""}})"});
  const auto state = grammar->Begin();
  TokenMask mask(NumMaskWords(vocabulary_.vocab_size));
  state->FillMask(mask);
  const auto tool = static_cast<size_t>(vocabulary_.end_tokens[0] - 1);
  EXPECT_TRUE(IsInMask(mask, tool));
  EXPECT_TRUE(state->Accept(static_cast<int32_t>(tool)));
  EXPECT_TRUE(state->Accept('7'));
  EXPECT_TRUE(state->may_end());
}

TEST_F(GrammarCompilerTest, PartsOfTagsAreHeldToWhatStandsAloneIs) {
  const auto error_of = [this](const std::string& content) {
    const auto answer = compiler_.CompileAndWait(
        {.kind = Kind::kStructuralTag,
         .text = R"({"type":"structural_tag","format":{"type":"tag","begin":"<","end":">","content":)" +
                 content + "}}"});
    return answer.ok() ? std::string() : answer.error().message;
  };
  EXPECT_EQ(error_of(R"({"type":"json_schema","json_schema":{"type":"integer"}})"), "");
  EXPECT_NE(error_of(R"({"type":"json_schema","json_schema":{"properties":{"a":{"not":{}}}}})")
                .find("#/format/content/json_schema: #/properties/a/not"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"type":"regex","pattern":"(a"})").find("#/format/content/pattern: "),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"type":"qwen_xml_parameter","json_schema":{}})").find("#/format/content/json_schema: "),
      std::string::npos);
  const auto grammar = Must({.kind = Kind::kStructuralTag,
                             .text = R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"json_schema","json_schema":{"type":"integer","minimum":3,"maximum":5}},
      {"type":"regex","pattern":"[ab]{2}"}]}})"});
  EXPECT_TRUE(TakesText(*grammar, "4ab"));
  EXPECT_FALSE(TakesText(*grammar, "6ab"));
  EXPECT_FALSE(TakesText(*grammar, "4abb"));
}

TEST_F(GrammarCompilerTest, ReferencesInCirclesEnd) {
  std::string doubling = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 30; ++i)
    doubling +=
        fmt::format(R"("a{0}":{{"allOf":[{{"$ref":"#/$defs/a{1}"}},{{"$ref":"#/$defs/a{1}"}}]}},)", i, i + 1);
  doubling += R"("a30":{"type":"integer"}}})";
  for (
      const std::string& schema :
      {std::string(R"({"allOf":[{"$ref":"#"},{"type":"integer"}]})"), std::string(R"({"$ref":"#"})"),
       std::string(R"({"$ref":"#","type":"object"})"),
       std::string(
           R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"minimum":1}]}}})"),
       doubling}) {
    EXPECT_FALSE(compiler_.CompileAndWait({.kind = Kind::kJsonSchema, .text = schema}).ok()) << schema;
  }
}

TEST_F(GrammarCompilerTest, EqualSpecsCompileOnce) {
  std::atomic<int> answers = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j)
        if (compiler_.CompileAndWait({.kind = Kind::kRegex, .text = "[a-z]{3}[0-9]*"}).ok()) ++answers;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers, 20);
  EXPECT_EQ(compiler_.counters().compiled, 1);
  EXPECT_EQ(compiler_.counters().cached_grammars, 1);
  EXPECT_GT(compiler_.counters().cached_bytes, 0);
}

TEST_F(GrammarCompilerTest, ASpecThatIsTooLargeIsRefusedAtOnce) {
  bool called = false;
  compiler_.Compile({.kind = Kind::kRegex, .text = std::string(size_t{300} << 10, 'a')},
                    [&](const GrammarCompiler::Answer& answer) {
                      called = true;
                      EXPECT_EQ(answer.error().message,
                                "the regular expression has 307200 bytes, and at most 262144 are allowed");
                    });
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace tandem
