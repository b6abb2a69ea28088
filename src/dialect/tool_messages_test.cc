#include "dialect/tool_messages.h"

#include <gtest/gtest.h>

#include "dialect/answer_testing.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<ToolSpec> kWeather = {
    {.name = "get_weather",
     .description = "The weather of a city",
     .parameters = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}},
    {.name = "now"},
};

// "role: content" a message.
std::string Rendered(const char* messages, const std::vector<ToolSpec>& tools = {}) {
  std::string lines;
  for (const Json& message : RenderToolsAsText(Json::parse(messages), tools)) {
    EXPECT_EQ(message.size(), 2U) << message;
    lines += message["role"].get<std::string>() + ": " + message["content"].get<std::string>() + "\n";
  }
  return lines;
}

TEST(RenderToolsAsText, TheToolsAreInTheSystemMessage) {
  const std::string described = Rendered(R"([{"role": "user", "content": "Hi"}])", kWeather);
  EXPECT_TRUE(described.starts_with("system: # Tools\n")) << described;
  EXPECT_TRUE(described.ends_with("\nuser: Hi\n")) << described;
  EXPECT_NE(
      described.find(R"({"type":"function","function":{"name":"get_weather","description":"The weather of a )"
                     R"(city","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}})"
                     "\n"),
      std::string::npos)
      << described;
  EXPECT_NE(described.find(R"({"name":"now","parameters":{"type":"object","properties":{}}})"),
            std::string::npos);
  EXPECT_NE(described.find("<tool_call>\n{\"name\": "), std::string::npos);

  const std::string behind = Rendered(
      R"([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}])", kWeather);
  EXPECT_TRUE(behind.starts_with("developer: Be brief.\n\n# Tools\n")) << behind;
  EXPECT_EQ(behind.find("system:"), std::string::npos);
}

TEST(RenderToolsAsText, CallsAndResults) {
  EXPECT_EQ(Rendered(R"([
    {"role": "user", "content": [{"type": "text", "text": "Paris"}, {"type": "text", "text": "?"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}},
      {"id": "b", "type": "function", "function": {"name": "now", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "b", "content": "12:00 \"sharp\""},
    {"role": "tool", "tool_call_id": "a", "content": "{\"t\": 20.0}"},
    {"role": "assistant", "content": "20 degrees."}])"),
            R"(user: Paris?
assistant: <tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
<tool_call>
{"name": "now", "arguments": {}}
</tool_call>
user: <tool_response>
{"name": "get_weather", "content": {"t": 20.0}}
</tool_response>
<tool_response>
{"name": "now", "content": "12:00 \"sharp\""}
</tool_response>
assistant: 20 degrees.
)");
}

TEST(RenderToolsAsText, TheSameFunctionTwice) {
  EXPECT_EQ(Rendered(R"([
    {"role": "assistant", "content": "Look:", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
      {"id": "b", "type": "function", "function": {"name": "f", "arguments": {"x": 2}}}]},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
    {"role": "tool", "tool_call_id": "a", "content": "[1"}])"),
            R"(assistant: Look:
<tool_call>
{"name": "f", "arguments": {"x": 1}}
</tool_call>
<tool_call>
{"name": "f", "arguments": {"x":2}}
</tool_call>
user: <tool_response>
{"name": "f", "arguments": {"x": 1}, "content": "[1"}
</tool_response>
<tool_response>
{"name": "f", "arguments": {"x":2}, "content": "two"}
</tool_response>
)");
}

TEST(RenderToolsAsText, NothingIsEmptyAndNothingIsLost) {
  EXPECT_EQ(
      Rendered(R"([{"role": "assistant", "content": ""}, {"role": "user", "content": "A"}, 5, {"content": []},
    {"role": "tool", "tool_call_id": "?", "content": "stray"}, {"role": "function", "name": "g", "content": ""},
    {"role": "assistant", "tool_calls": [5, {}, {"function": {"name": 5}}], "content": null}])"),
      R"(user: A
user: <tool_response>
{"content": "stray"}
</tool_response>
<tool_response>
{"name": "g", "content": ""}
</tool_response>
)");
}

TEST(RenderToolsAsText, ThePastIsInTheFormThatTheParserReads) {
  const Json rendered =
      RenderToolsAsText(Json::parse(R"([{"role": "assistant", "content": "Look:", "tool_calls": [
      {"id": "a", "function": {"name": "a\"b", "arguments": "{\"x\": \"</tool_call>\"}"}},
      {"id": "b", "function": {"name": "now", "arguments": "{}"}}]}])"),
                        {});
  ExpectParts(
      {.format = ToolFormat::kGeneric, .tools = {"a\"b", "now"}}, rendered[0]["content"].get<std::string>(),
      "text: Look:\ncall: a\"b\narguments: {\"x\": \"</tool_call>\"}\nend\ncall: now\narguments: {}\nend");
}

}  // namespace
}  // namespace tandem
