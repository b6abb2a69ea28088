// The forms of calls beside that of Hermes, which answer_parser_test.cc has.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dialect/answer_testing.h"

namespace tandem {
namespace {

void ExpectAll(ToolFormat format, const std::vector<AnswerCase>& cases) {
  for (const auto& [answer, parts] : cases) {
    ExpectParts({.format = format, .tools = {"get_weather", "get", "now", "a.b-c"}}, answer, parts);
  }
}

void ExpectText(ToolFormat format, const std::vector<std::string>& answers) {
  for (const std::string& answer : answers) {
    ExpectParts({.format = format, .tools = {"get_weather", "get", "now"}}, answer, "text: " + answer);
  }
}

TEST(CallFormats, LlamaJson) {
  ExpectAll(
      ToolFormat::kLlamaJson,
      {
          {R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
           "call: get_weather\narguments: {\"city\": \"Paris\"}\nend"},
          {"\n<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "call: now\narguments: {}\nend"},
          {R"({"type": "function", "name": "get", "arguments": {"a": 1}})",
           "call: get\narguments: {\"a\": 1}\nend"},
          {R"({"name": "now", "parameters": {}}; {"name": "get", "parameters": {"a": ";"}};{"name": "now"})",
           "call: now\narguments: {}\nend\ncall: get\narguments: {\"a\": \";\"}\nend\ncall: now\narguments: "
           "{}\nend"},
          {R"([{"name": "now", "parameters": {}}, {"name": "now", "parameters": {}}])",
           "call: now\narguments: {}\nend\ncall: now\narguments: {}\nend"},
          {R"({"name": "now", "parameters": {}}; {"name": "unknown", "parameters": {}})",
           "call: now\narguments: {}\nend\ntext: ; {\"name\": \"unknown\", \"parameters\": {}}"},
          {"{\"name\": \"now\", \"parameters\": {}}\n\nThat is it.",
           "call: now\narguments: {}\nend\ntext: That is it."},
          {R"(Let me look: <|python_tag|>{"name": "now", "parameters": {}})",
           "text: Let me look:\ncall: now\narguments: {}\nend"},
          {R"({"parameters": {"a": 1}, "name": "get"})", "call: get\narguments: {\"a\": 1}\nend"},
      });
  ExpectText(ToolFormat::kLlamaJson,
             {R"({"name": "get"})", R"({"name": "Bob", "parameters": {}})", R"({"answer": 5, "name": "get"})",
              R"(So: {"name": "now", "parameters": {}})", "{", " [1, 2]", "<|python_tag|>print(1)"});
}

TEST(CallFormats, AJsonAnswerIsNotHeldBack) {
  const auto parser = MakeAnswerParser({.format = ToolFormat::kLlamaJson, .tools = {"get"}});
  std::vector<AnswerPart> parts;
  parser->Append("{\"n", &parts);
  EXPECT_TRUE(parts.empty());
  parser->Append("umber\": 5", &parts);
  EXPECT_EQ(Describe(parts), "text: {\"number\": 5");
}

TEST(CallFormats, Mistral) {
  for (const ToolFormat format : {ToolFormat::kMistral, ToolFormat::kMistralArgs}) {
    ExpectAll(format,
              {
                  {R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}])",
                   "call: get_weather\narguments: {\"city\": \"Paris\"}\nend"},
                  {R"(Wait. [TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcdefghi"}, )"
                   R"({"arguments": {"a": [1]}, "name": "get"}] Done)",
                   "text: Wait.\ncall: now\narguments: {}\nend\ncall: get\narguments: {\"a\": "
                   "[1]}\nend\ntext: Done"},
                  {R"([TOOL_CALLS]{"name": "now", "arguments": {}})", "call: now\narguments: {}\nend"},
                  {R"([TOOL_CALLS]get{"a": "]"}[TOOL_CALLS]a.b-c{})",
                   "call: get\narguments: {\"a\": \"]\"}\nend\ncall: a.b-c\narguments: {}\nend"},
                  {R"([TOOL_CALLS]get[ARGS]{"a": 1} [TOOL_CALLS] now [ARGS] {})",
                   "call: get\narguments: {\"a\": 1}\nend\ncall: now\narguments: {}\nend"},
                  {R"([TOOL_CALLS]get[CALL_ID]Ab1[ARGS]{"a": 1}})",
                   "call: get\narguments: {\"a\": 1}\nend\ntext: }"},
                  {R"([TOOL_CALLS]get[ARGS]{"a": [)", "call: get\narguments: {\"a\": [\nend"},
              });
    ExpectText(format, {"[TOOL_CALLS]", "[TOOL_CALLS] [{", "[TOOL_CALLS]gett{}", "[TOOL_CALLS]get[ARG]{}",
                        "[TOOL_CALLS]get 5", "[1] [TOOL", "[TOOL_CALLS] []", "[TOOL_CALLS]get"});
  }
}

TEST(CallFormats, Pythonic) {
  ExpectAll(
      ToolFormat::kPythonic,
      {
          {"[get_weather(city=\"Paris\")]", "call: get_weather\narguments: {\"city\": \"Paris\"}\nend"},
          {" [now(), get(a=1,b='x', c = True,), now( ) , ] \n",
           "call: now\narguments: {}\nend\ncall: get\narguments: {\"a\": 1, \"b\": \"x\", \"c\": true}\nend\n"
           "call: now\narguments: {}\nend"},
          {"Hm. <|python_start|>[get(a=None, b=[1, -2.5, [], 1e3,], c={'k': {}, \"l\": "
           "[False]})]<|python_end|>\nSo",
           "text: Hm.\ncall: get\narguments: "
           "{\"a\": null, \"b\": [1, -2.5, [], 1e3], \"c\": {\"k\": {}, \"l\": [false]}}\nend\ntext: So"},
          {"<|tool_call_start|>[now()]<|tool_call_end|>", "call: now\narguments: {}\nend"},
          {"<|python_tag|>now()", "call: now\narguments: {}\nend"},
          {"[get(a=.5, b=5., c=+1_000, d=-.5, e=1.e3)]",
           "call: get\narguments: {\"a\": 0.5, \"b\": 5.0, \"c\": 1000, \"d\": -0.5, \"e\": 1.0e3}\nend"},
          {R"x([get(a='"\'])', b="it's\n\t\\ \x41\u00e9\U0001F600\q\/", c='')])x",
           R"x(call: get
arguments: {"a": "\"'])", "b": "it's\n\t\\ Aé😀\\q/", "c": ""}
end)x"},
          {"[get(a=\"\"\"one \"two\"\nthree\"\"\", b=''''x''')]",
           R"(call: get
arguments: {"a": "one \"two\"\nthree", "b": "'x"}
end)"},
          {R"([get(a="\ud83d\ude00", b=true, c=null)])",
           "call: get\narguments: {\"a\": \"\\ud83d\\ude00\", \"b\": true, \"c\": null}\nend"},
          {"[a.b-c(x=1)]", "call: a.b-c\narguments: {\"x\": 1}\nend"},
          // Broken, or broken off.
          {"[get(a=1, b=f(2))]", "call: get\narguments: {\"a\": 1, \"b\": \nend\ntext: f(2))]"},
          {"[get(1)]", "call: get\narguments: {\nend\ntext: 1)]"},
          {"[get(a={1: 2})]", "call: get\narguments: {\"a\": {\nend\ntext: 1: 2})]"},
          {"[get(a=\"x", "call: get\narguments: {\"a\": \"x\nend"},
          {"[get(a=1, b=Tru", "call: get\narguments: {\"a\": 1, \"b\": \nend"},
          {"[now(), unknown()]", "call: now\narguments: {}\nend\ntext: , unknown()]"},
          {"[now()", "call: now\narguments: {}\nend"},
          {"[now()]<|python_e", "call: now\narguments: {}\nend"},
      });
  ExpectText(ToolFormat::kPythonic,
             {"[1, 2]", "[", "[get", "[get]", "[gets(a=1)]", "See [now()]", "now()", "<|python_start|>x"});
}

TEST(CallFormats, PythonicArgumentsAreJson) {
  const std::string answer = "[get(a='\\0\\x1f\\\n\r\t\x01', b=[[{}], {'x\"': 'y'}])]";
  const auto parser = MakeAnswerParser({.format = ToolFormat::kPythonic, .tools = {"get"}});
  std::vector<AnswerPart> parts;
  parser->Append(answer, &parts);
  parser->Finish(&parts);
  std::string arguments;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kCallArguments) arguments += part.text;
  }
  EXPECT_EQ(nlohmann::json::parse(arguments, nullptr, false),
            nlohmann::json::parse(R"({"a": "\u0000\u001f\r\t\u0001", "b": [[{}], {"x\"": "y"}]})"))
      << arguments;
}

TEST(CallFormats, Generic) {
  ExpectAll(ToolFormat::kGeneric,
            {
                {"Yes.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
                 "text: Yes.\ncall: now\narguments: {}\nend"},
                {R"({"name": "get", "arguments": {"a": 1}})", "call: get\narguments: {\"a\": 1}\nend"},
                {"[{\"name\": \"get\", \"arguments\": {\"a\": 1}}]</tool_call>",
                 "call: get\narguments: {\"a\": 1}\nend"},
            });
  ExpectText(ToolFormat::kGeneric, {R"({"name": "get"})", R"({"city": "Paris"})", "[1]"});
}

}  // namespace
}  // namespace tandem
