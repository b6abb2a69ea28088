#include "dialect/answer_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dialect/answer_testing.h"

namespace tandem {
namespace {

const std::vector<std::string> kTools = {"get_weather", "get", "now", "say \"hi\""};

AnswerParserOptions Reading(ToolFormat format) {
  return {.format = format, .tools = kTools};
}

TEST(AnswerParser, WithoutToolsAllIsText) {
  ExpectParts({}, "<tool_call>\n{}</tool_call> <think>x</think>\n",
              "text: <tool_call>\n{}</tool_call> <think>x</think>\n");
  ExpectParts({.format = ToolFormat::kHermes}, " <tool_call>", "text:  <tool_call>");
  ExpectParts({}, "", "");
}

TEST(AnswerParser, Hermes) {
  for (
      const auto& [answer, parts] : std::vector<AnswerCase>{
          {"Hello, <b>you</b>.\n", "text: Hello, <b>you</b>.\n"},
          {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
           "call: get_weather\narguments: {\"city\": \"Paris\"}\nend"},
          {"Let me look. \n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
           "text: Let me look.\ncall: now\narguments: {}\nend"},
          // Several calls, and text around them.
          {"A <tool_call>{\"name\":\"now\",\"arguments\":{ }}</tool_call> \n "
           "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":[1,{}]}}</tool_call>\n\nB\n",
           "text: A\ncall: now\narguments: { }\nend\ncall: get\narguments: {\"a\":[1,{}]}\nend\ntext: B\n"},
          // Strings with braces, brackets, markers and escapes.
          {R"(<tool_call>{"name": "get", "arguments": {"a": "}\"]</tool_call>\\", "b\"{": {"c": "é{"}}}</tool_call>)",
           "call: get\narguments: {\"a\": \"}\\\"]</tool_call>\\\\\", \"b\\\"{\": {\"c\": \"é{\"}}\nend"},
          // Keys in another order, other keys, other spellings.
          {R"(<tool_call>{"arguments": {"a": 1}, "name": "get"}</tool_call>)",
           "call: get\narguments: {\"a\": 1}\nend"},
          {R"(<tool_call> {"id": [7, "x"], "name" : "get" , "parameters" : {"a": 1} , "id": "}"} </tool_call>)",
           "call: get\narguments: {\"a\": 1}\nend"},
          {R"(<tool_call>{"name": "say \"hi\"", "arguments": {}}</tool_call>)",
           "call: say \"hi\"\narguments: {}\nend"},
          {R"(<tool_call>{"name": "get", "arguments": "{\"a\": 1}"}</tool_call>)",
           "call: get\narguments: {\"a\": 1}\nend"},
          {R"(<tool_call>{"name": "get", "arguments": null}</tool_call>)", "call: get\narguments: {}\nend"},
          {R"(<tool_call>{"name": "now"}</tool_call>)", "call: now\narguments: {}\nend"},
          // Several calls between one pair of markers.
          {R"(<tool_call>[{"name": "now", "arguments": {}}, {"name": "get", "arguments": {"a": 1}}]</tool_call>.)",
           "call: now\narguments: {}\nend\ncall: get\narguments: {\"a\": 1}\nend\ntext: ."},
          {"<tool_call>{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": "
           "{}}</tool_call>",
           "call: now\narguments: {}\nend\ncall: now\narguments: {}\nend"},
          // Calls without their end.
          {R"(<tool_call>{"name": "now", "arguments": {}})", "call: now\narguments: {}\nend"},
          {R"(<tool_call>{"name": "now", "arguments": {})", "call: now\narguments: {}\nend"},
          {R"(<tool_call>{"name": "now", "arguments": {}</tool_call> x)",
           "call: now\narguments: {}\nend\ntext: x"},
          {R"(<tool_call>{"name": "now", "arguments": {}}</tool_)", "call: now\narguments: {}\nend"},
          {R"(<tool_call>{"name": "now", "arguments": {}} and so on)",
           "call: now\narguments: {}\nend\ntext: and so on"},
      }) {
    ExpectParts(Reading(ToolFormat::kHermes), answer, parts);
  }
}

TEST(AnswerParser, WhatIsNoCallStaysText) {
  for (const std::string_view answer : {
           "<tool_call>",
           " \n<tool_c",
           "a < b <tool <tool_calls>",
           "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>\n",
           "<tool_call>\n{\"name\": \"get_weathe\", \"arguments\": {}}\n</tool_call>",
           R"(<tool_call>{"name": "get"  )",
           R"(<tool_call>{"name": "get", "arguments": 5}</tool_call>)",
           R"(<tool_call>{"name": "get", "arguments": "no object"}</tool_call>)",
           R"(<tool_call>{"name": 5, "arguments": {}}</tool_call>)",
           R"(<tool_call>{"arguments": {}}</tool_call>)",
           R"(<tool_call>{"arguments": {"a": 1}, "nam)",
           R"(<tool_call>{name: "get", "arguments": {}}</tool_call>)",
           R"(<tool_call>get(a=1)</tool_call>)",
           R"({"name": "get", "arguments": {}})",
       }) {
    ExpectParts(Reading(ToolFormat::kHermes), answer, "text: " + std::string(answer));
  }
}

TEST(AnswerParser, ACallMayFollowWhatIsNone) {
  ExpectParts(Reading(ToolFormat::kHermes),
              "<tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n</tool_call>",
              "text: <tool_call>\ncall: now\narguments: {}\nend\ntext: </tool_call>");
}

TEST(AnswerParser, BrokenArgumentsEndWhereTheyBreak) {
  ExpectParts(Reading(ToolFormat::kHermes), R"(<tool_call>{"name": "get", "arguments": {"a": 1)",
              "call: get\narguments: {\"a\": 1\nend");
  ExpectParts(Reading(ToolFormat::kHermes),
              R"(<tool_call>{"name": "get", "arguments": {"a": [1</tool_call> b)",
              "call: get\narguments: {\"a\": [1\nend\ntext: b");
  ExpectParts(Reading(ToolFormat::kHermes), R"(<tool_call>{"name": "get", "arguments": {"a": [1}} b)",
              "call: get\narguments: {\"a\": [1\nend\ntext: } b");
}

TEST(AnswerParser, Reasoning) {
  AnswerParserOptions options = Reading(ToolFormat::kHermes);
  options.reasoning = true;
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  ExpectParts(options, "\n<think>\nA <b> \nB\n</think>\n\nC\n", "reasoning: A <b> \nB\ntext: C\n");
  ExpectParts(options, "<think>" + call + "</think>" + call,
              "reasoning: " + call + "\ncall: now\narguments: {}\nend");
  ExpectParts(options, "<think>\n\n</think>\n\nC", "text: C");
  ExpectParts(options, "<think>A</think", "reasoning: A</think");
  ExpectParts(options, "<think>A ", "reasoning: A");
  ExpectParts(options, "C <think>A</think>", "text: C <think>A</think>");
  ExpectParts(options, " <thin", "text:  <thin");
  ExpectParts(options, "A</think>B", "text: A</think>B");
  options.starts_in_reasoning = true;
  ExpectParts(options, "A\n</think>\n" + call, "reasoning: A\ncall: now\narguments: {}\nend");
  ExpectParts(options, "<think>\nA</think>B", "reasoning: A\ntext: B");
  ExpectParts(options, "<thi", "reasoning: <thi");
  ExpectParts(options, "</think>B", "text: B");
  ExpectParts(options, "", "");
}

std::vector<AnswerPart> Append(AnswerParser* parser, std::string_view text) {
  std::vector<AnswerPart> parts;
  parser->Append(text, &parts);
  return parts;
}

TEST(AnswerParser, NothingIsHeldBackLongerThanNeeded) {
  using Kind = AnswerPart::Kind;
  using Parts = std::vector<AnswerPart>;
  AnswerParserOptions options = Reading(ToolFormat::kHermes);
  options.reasoning = true;
  const auto parser = MakeAnswerParser(options);
  EXPECT_EQ(Append(parser.get(), "<think>A"), (Parts{{Kind::kReasoning, "A"}}));
  EXPECT_EQ(Append(parser.get(), " \n</"), Parts{});
  EXPECT_EQ(Append(parser.get(), "b>"), (Parts{{Kind::kReasoning, " \n</b>"}}));
  EXPECT_EQ(Append(parser.get(), "</think>\nC <to"), (Parts{{Kind::kText, "C"}}));
  EXPECT_EQ(Append(parser.get(), "p>"), (Parts{{Kind::kText, " <top>"}}));
  EXPECT_EQ(Append(parser.get(), "\n<tool_call>{\"name\": \"get\""), Parts{});
  EXPECT_EQ(Append(parser.get(), ", \"arguments\": {"),
            (Parts{{Kind::kCallBegin, "get"}, {Kind::kCallArguments, "{"}}));
  EXPECT_EQ(Append(parser.get(), "\"a"), (Parts{{Kind::kCallArguments, "\"a"}}));
  EXPECT_EQ(Append(parser.get(), "\xC3"), Parts{});
  EXPECT_EQ(Append(parser.get(), "\xA9\": 1}"),
            (Parts{{Kind::kCallArguments, "é\": 1}"}, {Kind::kCallEnd, ""}}));
  EXPECT_EQ(Append(parser.get(), "}\n</tool_call>\n"), Parts{});
  EXPECT_EQ(Append(parser.get(), "D"), (Parts{{Kind::kText, "D"}}));
  EXPECT_EQ(Append(parser.get(), "<tool_call>{\"name\": \"u"),
            (Parts{{Kind::kText, "<tool_call>{\"name\": \"u"}}));
}

TEST(AnswerParser, LongArgumentsBeforeTheName) {
  const std::string value(20000, 'x');
  const std::string arguments = R"({"a": ")" + value + R"("})";
  const std::string answer = R"(<tool_call>{"arguments": )" + arguments + R"(, "name": "get"}</tool_call>)";
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < answer.size(); ++i) bytes.push_back(std::string_view(answer).substr(i, 1));
  EXPECT_EQ(ParseInPieces(Reading(ToolFormat::kHermes), bytes),
            "call: get\narguments: " + arguments + "\nend");
}

}  // namespace
}  // namespace tandem
