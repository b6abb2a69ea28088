#include "dialect/messages.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "dialect/tool_messages.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const Json kOwn = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

std::unique_ptr<ChatTemplate> ParseFixture(const std::string& name) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/chat_templates/" + name + ".jinja");
  EXPECT_TRUE(file.good()) << name;
  auto parsed = ChatTemplate::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_TRUE(parsed.ok()) << name;
  return std::move(parsed).value();
}

TemplateHabits HabitsOf(const std::string& name) {
  return FindTemplateHabits(*ParseFixture(name), kOwn);
}

const Json kHard = Json::parse(R"([
  {"role": "developer", "content": "Rule one."},
  {"role": "user", "content": "First."},
  {"role": "user", "content": "Second."},
  {"role": "system", "content": "Rule two."},
  {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
    {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
  {"role": "tool", "tool_call_id": "call_1", "content": "result one"},
  {"role": "tool", "tool_call_id": "call_2", "content": "result two"},
  {"role": "assistant", "content": "Done."},
  {"role": "user", "content": "Last."}])");

TEST(Messages, HabitsOfRealTemplates) {
  EXPECT_TRUE(HabitsOf("smollm2").has_later_system);
  EXPECT_TRUE(HabitsOf("smollm2").may_repeat_roles);
  EXPECT_FALSE(HabitsOf("smollm2").has_developer);
  EXPECT_TRUE(HabitsOf("qwen3").has_later_system);
  EXPECT_TRUE(HabitsOf("llama3_1").has_later_system);
  EXPECT_FALSE(HabitsOf("llama3_1").has_parallel_calls);
  EXPECT_TRUE(HabitsOf("qwen2_5").has_parallel_calls);
  EXPECT_TRUE(HabitsOf("mistral_v0_3").has_system);
  EXPECT_FALSE(HabitsOf("mistral_v0_3").has_later_system);
  EXPECT_FALSE(HabitsOf("mistral_v0_3").may_repeat_roles);
  EXPECT_TRUE(HabitsOf("mistral_v0_3").has_parallel_calls);
  EXPECT_FALSE(HabitsOf("mistral_v0_1").has_system);
  EXPECT_FALSE(HabitsOf("llama2").has_later_system);
}

// Templates that know tools take the conversation as it is, others as text; all say all of it.
TEST(Messages, EveryTemplateRendersAHardConversation) {
  for (const char* name : {"smollm2", "tinyllama", "qwen2", "qwen2_5", "qwen3", "llama2", "llama3",
                           "llama3_1", "mistral_v0_1", "mistral_v0_3", "parts"}) {
    SCOPED_TRACE(name);
    const auto chat_template = ParseFixture(name);
    const ToolFormat format = ChooseToolFormat(chat_template->source());
    Json messages = format == ToolFormat::kGeneric ? RenderToolsAsText(kHard, {}) : kHard;
    messages = NormalizeMessages(messages, FindTemplateHabits(*chat_template, kOwn));
    if (format == ToolFormat::kMistral) messages = WithShortCallIds(messages);
    const auto rendered = chat_template->Render({{"messages", messages}}, kOwn);
    ASSERT_TRUE(rendered.ok()) << rendered.error().message << "\n" << messages.dump(1);
    for (const char* word :
         {"Rule one.", "Rule two.", "First.", "Second.", "result one", "result two", "Done.", "Last."}) {
      EXPECT_NE(rendered.value().text.find(word), std::string::npos) << word << " in\n"
                                                                     << rendered.value().text;
    }
    EXPECT_EQ(rendered.value().text.find("developer"), std::string::npos);
  }
}

std::string Lines(const Json& messages) {
  std::string lines;
  for (const Json& message : messages) {
    lines += message.value("role", "?") + ": " + TextOfContent(message["content"]);
    if (message.contains("tool_calls")) {
      for (const Json& call : message["tool_calls"]) lines += " " + call["function"].dump();
    }
    lines += "\n";
  }
  return lines;
}

TEST(Messages, WithoutHabitsToWorkAroundLittleChanges) {
  Json expected = kHard;
  expected[0]["role"] = "system";
  expected[4]["tool_calls"][0]["function"]["arguments"] = {{"x", 1}};
  expected[4]["tool_calls"][1]["function"]["arguments"] = Json::object();
  EXPECT_EQ(NormalizeMessages(kHard, {}), expected);
  EXPECT_EQ(NormalizeMessages(kHard, {.has_developer = true})[0], kHard[0]);
}

TEST(Messages, LaterSystemMessagesJoinTheFirst) {
  const Json first = Json::parse(R"([{"role": "system", "content": [{"type": "text", "text": "A"}]},
    {"role": "user", "content": "U"}, {"role": "developer", "content": "B"}])");
  EXPECT_EQ(Lines(NormalizeMessages(first, {.has_later_system = false})), "system: A\n\nB\nuser: U\n");
  const Json none = Json::parse(R"([{"role": "user", "content": "U"}, {"role": "system", "content": "B"}])");
  EXPECT_EQ(Lines(NormalizeMessages(none, {.has_later_system = false})), "system: B\nuser: U\n");
}

TEST(Messages, WithoutASystemItsTextIsTheUsers) {
  const TemplateHabits habits = {.has_system = false, .has_later_system = false};
  EXPECT_EQ(
      Lines(NormalizeMessages(
          Json::parse(R"([{"role": "system", "content": "A"}, {"role": "user", "content": "U"}])"), habits)),
      "user: A\n\nU\n");
  EXPECT_EQ(Lines(NormalizeMessages(Json::parse(R"([{"role": "system", "content": "A"}])"), habits)),
            "user: A\n");
}

TEST(Messages, ACallEachAndAlternatingRoles) {
  EXPECT_EQ(Lines(NormalizeMessages(
                kHard, {.has_later_system = false, .may_repeat_roles = false, .has_parallel_calls = false})),
            "system: Rule one.\n\nRule two.\n"
            "user: First.\n\nSecond.\n"
            "assistant:  {\"name\":\"f\",\"arguments\":{\"x\":1}}\n"
            "tool: result one\n"
            "assistant:  {\"name\":\"g\",\"arguments\":{}}\n"
            "tool: result two\n"
            "assistant: Done.\n"
            "user: Last.\n");
}

TEST(Messages, WhatIsMalformedStays) {
  const Json odd = Json::parse(
      R"([5, null, {"role": 5}, {"tool_calls": [1, {"function": 2}, {"function": {"arguments": "{"}}]},
    {"role": "tool"}, {"role": "user", "content": 5}])");
  EXPECT_EQ(NormalizeMessages(odd, {}), odd);
  NormalizeMessages(odd, {.has_system = false,
                          .has_later_system = false,
                          .may_repeat_roles = false,
                          .has_parallel_calls = false});
  WithShortCallIds(odd);
}

TEST(Messages, ShortCallIds) {
  EXPECT_EQ(ShortCallId("abcDEF123"), "abcDEF123");
  const std::string brief = ShortCallId("call_1");
  EXPECT_EQ(brief.size(), 9U);
  EXPECT_EQ(ShortCallId(brief), brief);
  EXPECT_NE(ShortCallId("call_2"), brief);
  const Json messages = WithShortCallIds(kHard);
  EXPECT_EQ(messages[4]["tool_calls"][0]["id"], brief);
  EXPECT_EQ(messages[5]["tool_call_id"], brief);
}

}  // namespace
}  // namespace tandem
