#include "grammar/grammar_compiler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
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
                .find("#/format/content/json_schema of the structural tag: #/properties/a/not"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"type":"regex","pattern":"(a"})").find("#/format/content/pattern of the structural tag: "),
      std::string::npos);
  EXPECT_NE(error_of(R"({"type":"qwen_xml_parameter","json_schema":{}})")
                .find("#/format/content/type of the structural tag: "),
            std::string::npos);
  const auto grammar = Must({.kind = Kind::kStructuralTag,
                             .text = R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"json_schema","json_schema":{"type":"integer","minimum":3,"maximum":5}},
      {"type":"regex","pattern":"[ab]{2}"}]}})"});
  EXPECT_TRUE(TakesText(*grammar, "4ab"));
  EXPECT_FALSE(TakesText(*grammar, "6ab"));
  EXPECT_FALSE(TakesText(*grammar, "4abb"));
}

TEST_F(GrammarCompilerTest, TheStyleOfATagIsThatOfItsSchemas) {
  GrammarSpec spec{.kind = Kind::kStructuralTag, .text = R"({"type":"structural_tag","format":
      {"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}})"};
  const char* const spaced = "{ \"a\" :1}";
  const char* const open = "{\"a\": 1, \"b\": 2}";
  for (const bool strict : {true, false}) {
    for (const bool any_whitespace : {true, false}) {
      spec.strict = strict;
      spec.any_whitespace = any_whitespace;
      const auto grammar = Must(spec);
      ASSERT_NE(grammar, nullptr);
      EXPECT_EQ(TakesText(*grammar, spaced), any_whitespace) << strict;
      EXPECT_EQ(TakesText(*grammar, open), !strict) << any_whitespace;
    }
  }
}

TEST_F(GrammarCompilerTest, TheOlderFormOfATagMayBeAPartOfOne) {
  const auto grammar = Must({.kind = Kind::kStructuralTag, .text = R"({"format": {"type": "or", "elements": [
      {"type": "const_string", "value": "none"},
      {"type": "structural_tag", "triggers": ["<f="],
       "structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}]}]}})"});
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(TakesText(*grammar, "none"));
  EXPECT_TRUE(TakesText(*grammar, "<f=a>12</f>"));
  EXPECT_FALSE(TakesText(*grammar, "<f=a>x</f>"));
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

// The vocabulary of a real model, whose tokens go over the borders of everything.
TEST(GrammarsOfTheModel, DrawnAnswersFollow) {
  const std::unique_ptr<Tokenizer> tokenizer = ModelTokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL names no model";
  const int32_t end = tokenizer->eos_token_id().value();
  const auto vocabulary = MakeGrammarVocabulary(*tokenizer, tokenizer->vocab_size() + 100, {&end, 1});
  GrammarCompiler compiler(vocabulary, {.max_compile_time = std::chrono::seconds(kSanitized ? 120 : 10)});
  const AnswerDrawer drawer(vocabulary);
  const auto for_all = [&](GrammarSpec spec, const auto& check) {
    const auto grammar = compiler.CompileAndWait(std::move(spec));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto answer = drawer.Draw(**grammar, seed, static_cast<int>(seed) * 3);
      ASSERT_EQ(answer.problem, "");
      ASSERT_TRUE(answer.has_ended) << answer.text;
      EXPECT_TRUE(check(answer.text)) << answer.text;
    }
  };
  const auto parsed = [](const std::string& text) { return nlohmann::json::parse(text, nullptr, false); };
  for_all({.kind = Kind::kJsonObject}, [&](const std::string& text) { return parsed(text).is_object(); });
  for_all(
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": -5, "maximum": 17},
                       "s": {"type": "string", "minLength": 2, "maxLength": 30}}, "required": ["n", "s"]})"},
      [&](const std::string& text) {
        const auto value = parsed(text);
        if (!value.is_object() || value.size() != 2) return false;
        const auto content = value["s"].get<std::string>();
        const auto length = std::ranges::count_if(content, [](char c) { return (c & 0xC0) != 0x80; });
        return value["n"] >= -5 && value["n"] <= 17 && length >= 2 && length <= 30;
      });
  for_all({.kind = Kind::kChoice, .choices = {"yes", "no", "not at all"}},
          [](const std::string& text) { return text == "yes" || text == "no" || text == "not at all"; });
  const std::regex phone("[0-9]{3}-[0-9]{4}( ext [0-9]{1,20})?");
  for_all({.kind = Kind::kRegex, .text = "^[0-9]{3}-[0-9]{4}( ext [0-9]{1,20})?$"},
          [&](const std::string& text) { return std::regex_match(text, phone); });
  const std::regex sum("[0-9]+( [+*] [0-9]+)*");
  for_all(
      {.kind = Kind::kEbnf, .text = "root ::= term (\" + \" term)*\nterm ::= n (\" * \" n)*\nn ::= [0-9]+\n"},
      [&](const std::string& text) { return std::regex_match(text, sum); });
  // Cut into tokens, a text is still the same text.
  const auto any = compiler.CompileAndWait({.kind = Kind::kJsonObject});
  const auto state = (*any)->Begin();
  for (const int32_t token :
       tokenizer->Encode(R"({"name": "Ada", "born": 1815, "é": [true, null, -1.5e3]})", false, false))
    ASSERT_TRUE(state->Accept(token));
  EXPECT_TRUE(state->Accept(end));
  EXPECT_TRUE(state->ended());
}

TEST_F(GrammarCompilerTest, AMistakeInAGrammarHasItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= \"a\"\nb ::= c", "line 2, column 7"},
      {"root ::= [a", "line 1, column 12"},
      {"top ::= \"a\"", "root"},
      {"root ::= \"a\"{99999}", "line 1, column 13 of the grammar: a repetition of more than 10000 times"},
      {"root ::= Regex(\"a\")", "line 1, column 10 of the grammar: `Regex(...)` is not supported"},
      {"root[temperature=2] ::= \"a\"", "line 1, column 1 of the grammar: attributes of rules"},
  };
  for (const auto& [text, place] : cases) {
    const auto grammar = compiler_.CompileAndWait({.kind = Kind::kEbnf, .text = text});
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_NE(grammar.error().message.find(place), std::string::npos) << grammar.error().message;
  }
}

TEST_F(GrammarCompilerTest, FreeTextOfATagRunsUntilATrigger) {
  for (
      const char* text :
      {R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [
          {"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {"type": "object", "properties": {"title":
          {"type": "integer"}}, "required": ["title"]}}, "end": "</f>"}]}})",
       R"({"type": "structural_tag", "triggers": ["<f="], "structures": [{"begin": "<f=a>", "schema": {"type": "object",
          "properties": {"title": {"type": "integer"}}, "required": ["title"]}, "end": "</f>"}]})"}) {
    const auto grammar = Must({.kind = Kind::kStructuralTag, .text = text});
    ASSERT_NE(grammar, nullptr);
    EXPECT_TRUE(TakesText(*grammar, "some text {"));
    EXPECT_TRUE(TakesText(*grammar, R"(a <f=a>{"title":7}</f> b)"));
    EXPECT_FALSE(TakesText(*grammar, R"(a <f=a>{"title":"x"}</f>)"));
    EXPECT_FALSE(TakesText(*grammar, "<f=b>"));
  }
}

TEST_F(GrammarCompilerTest, AMistakeInATagHasItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "# of the structural tag: it is an object"},
      {R"({"type": "structural_tag"})", "# of the structural tag: there is no `format`"},
      {R"({"format": {"type": "sequence", "elements": [{"type": "json_schema", "json_schema": {"not": {}}}]}})",
       "#/format/elements/0/json_schema of the structural tag: #/not: this keyword"},
      {R"x({"format": {"type": "regex", "pattern": "a(?=b)"}})x",
       "#/format/pattern of the structural tag: at byte 1"},
      {R"({"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}})",
       "#/format/style of the structural tag"},
      {R"({"format": {"type": "qwen_xml_parameter", "json_schema": {}}})",
       "#/format/type of the structural tag"},
      {R"({"format": {"type": "repeat", "min": 1, "max": 5000, "content": {"type": "const_string", "value": "a"}}})",
       "#/format/max of the structural tag"},
  };
  for (const auto& [text, message] : cases) {
    const auto grammar = compiler_.CompileAndWait({.kind = Kind::kStructuralTag, .text = text});
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_TRUE(grammar.error().message.starts_with(message)) << grammar.error().message;
  }
}

}  // namespace
}  // namespace tandem
