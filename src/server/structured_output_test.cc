#include "server/structured_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace tandem {
namespace {

using nlohmann::ordered_json;
using SpecKind = GrammarSpec::Kind;

AnswerGrammar GrammarOf(const std::string& body) {
  std::optional<AnswerGrammar> grammar;
  const auto error = ReadAnswerGrammar(ordered_json::parse(body), &grammar);
  EXPECT_FALSE(error) << body << ": " << error->message;
  EXPECT_TRUE(grammar.has_value()) << body;
  return grammar.value_or(AnswerGrammar{});
}

std::string ErrorOf(const std::string& body) {
  std::optional<AnswerGrammar> grammar;
  const auto error = ReadAnswerGrammar(ordered_json::parse(body), &grammar);
  return error ? error->param + ": " + error->message : "";
}

TEST(StructuredOutput, EachFieldSaysItsKind) {
  const std::pair<const char*, SpecKind> cases[] = {
      {R"({"response_format":{"type":"json_object"}})", SpecKind::kJsonObject},
      {R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}})",
       SpecKind::kJsonSchema},
      {R"({"response_format":{"type":"structural_tag","format":{}}})", SpecKind::kStructuralTag},
      {R"({"structured_outputs":{"json":"{}"}})", SpecKind::kJsonSchema},
      {R"({"structured_outputs":{"json_object":true}})", SpecKind::kJsonObject},
      {R"({"structured_outputs":{"regex":"a"}})", SpecKind::kRegex},
      {R"({"structured_outputs":{"choice":["a","b"]}})", SpecKind::kChoice},
      {R"({"structured_outputs":{"grammar":"root ::= \"a\""}})", SpecKind::kEbnf},
      {R"({"structured_outputs":{"structural_tag":"{}"}})", SpecKind::kStructuralTag},
      {R"({"guided_json":{}})", SpecKind::kJsonSchema},
      {R"({"guided_regex":"a"})", SpecKind::kRegex},
      {R"({"guided_choice":["a"]})", SpecKind::kChoice},
      {R"({"guided_grammar":"a"})", SpecKind::kEbnf},
      {R"({"grammar":"a"})", SpecKind::kEbnf},
      {R"({"ebnf":"a"})", SpecKind::kEbnf},
      {R"({"regex":"a"})", SpecKind::kRegex},
      {R"({"json_schema":{}})", SpecKind::kJsonSchema},
      {R"({"format":"json"})", SpecKind::kJsonObject},
      {R"({"format":{"type":"object"}})", SpecKind::kJsonSchema},
  };
  for (const auto& [body, kind] : cases) EXPECT_EQ(GrammarOf(body).spec.kind, kind) << body;
}

TEST(StructuredOutput, WhatAsksForNothingIsNothing) {
  for (const char* body : {R"({"response_format":{"type":"text"}})", R"({"structured_outputs":{}})",
                           R"({"format":""})", R"({"grammar":""})", R"({"guided_choice":[]})",
                           R"({"guided_json":null})", R"({"structured_outputs":{"json_object":false}})"}) {
    std::optional<AnswerGrammar> grammar;
    EXPECT_FALSE(ReadAnswerGrammar(ordered_json::parse(body), &grammar)) << body;
    EXPECT_FALSE(grammar.has_value()) << body;
  }
}

TEST(StructuredOutput, OptionsGoWithTheSchema) {
  AnswerGrammar grammar = GrammarOf(
      R"({"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"},"strict":true}}})");
  EXPECT_TRUE(grammar.spec.strict);
  EXPECT_FALSE(
      GrammarOf(
          R"({"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"},"strict":false}}})")
          .spec.strict);
  EXPECT_TRUE(
      GrammarOf(R"({"response_format":{"type":"json_schema","json_schema":{"schema":{}}}})").spec.strict);
  EXPECT_EQ(grammar.spec.text, R"({"type":"object"})");
  EXPECT_EQ(grammar.param, "response_format.json_schema.schema");
  grammar = GrammarOf(
      R"({"structured_outputs":{"json":{},"disable_any_whitespace":true,"disable_additional_properties":true}})");
  EXPECT_TRUE(grammar.spec.strict);
  EXPECT_FALSE(grammar.spec.any_whitespace);
}

TEST(StructuredOutput, WhatIsWrongIsNamed) {
  EXPECT_EQ(ErrorOf(R"({"guided_regex":"a","response_format":{"type":"json_object"}})"),
            "guided_regex: response_format and guided_regex both say what the answer has to follow: give one "
            "of them");
  EXPECT_EQ(ErrorOf(R"({"response_format":{}})"), "response_format.type: response_format.type is missing");
  EXPECT_EQ(ErrorOf(R"({"response_format":{"type":"json_schema"}})"),
            "response_format.json_schema: response_format.json_schema is missing");
  EXPECT_EQ(ErrorOf(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})"),
            "response_format.json_schema.schema: response_format.json_schema.schema is missing");
  EXPECT_EQ(ErrorOf(R"({"structured_outputs":{"choice":[1]}})"),
            "structured_outputs.choice: structured_outputs.choice must be strings that are not empty");
  EXPECT_EQ(ErrorOf(R"({"structured_outputs":{"json":1}})"),
            "structured_outputs.json: structured_outputs.json must be a JSON schema, not an integer");
  EXPECT_EQ(ErrorOf(R"({"format":"xml"})"), "format: format must be \"json\" or a JSON schema");
}

}  // namespace
}  // namespace tandem
