#include "dialect/dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace tandem {
namespace {

std::string Template(const std::string& name) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/chat_templates/" + name + ".jinja");
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Dialect, TheFormatIsThatOfTheTemplate) {
  for (const auto& [name, format] : std::initializer_list<std::pair<const char*, ToolFormat>>{
           {"qwen2_5", ToolFormat::kHermes},
           {"qwen3", ToolFormat::kHermes},
           {"llama3_1", ToolFormat::kLlamaJson},
           {"mistral_v0_3", ToolFormat::kMistral},
           {"smollm2", ToolFormat::kGeneric},
           {"llama2", ToolFormat::kGeneric},
           {"llama3", ToolFormat::kGeneric},
           {"tinyllama", ToolFormat::kGeneric},
           {"mistral_v0_1", ToolFormat::kGeneric},
           // It shows tools, and says nothing of how a call is written.
           {"parts", ToolFormat::kGeneric},
       }) {
    EXPECT_EQ(ToolFormatName(ChooseToolFormat(Template(name))), ToolFormatName(format)) << name;
  }
}

TEST(Dialect, TheFormatIsNotThatOfWordsBesideTheCode) {
  EXPECT_EQ(ChooseToolFormat("tools <tool_call> {# tools #}{{ 'tools' }}{{ \"\\\"tools\" }}"),
            ToolFormat::kGeneric);
  EXPECT_EQ(ChooseToolFormat("{{ my_tools }}<tool_call>"), ToolFormat::kGeneric);
  EXPECT_EQ(ChooseToolFormat("{% if tools %}<tool_call>"), ToolFormat::kHermes);
  EXPECT_EQ(ChooseToolFormat("{{tools}}<tool_call><function=f>"), ToolFormat::kGeneric);
  EXPECT_EQ(ChooseToolFormat("{{tools}}[TOOL_CALLS]f[ARGS]{}"), ToolFormat::kMistralArgs);
  EXPECT_EQ(ChooseToolFormat("{{tools}}<|python_start|>"), ToolFormat::kPythonic);
  EXPECT_EQ(ChooseToolFormat("{{ 'open"), ToolFormat::kGeneric);
  EXPECT_EQ(ChooseToolFormat("{# open {{ tools }}"), ToolFormat::kGeneric);
}

TEST(Dialect, NamesOfFormats) {
  for (const char* name :
       {"none", "hermes", "llama3_json", "pythonic", "mistral", "mistral_args", "generic"}) {
    const auto format = ParseToolFormat(name);
    ASSERT_TRUE(format.ok()) << name;
    EXPECT_EQ(ToolFormatName(*format), name);
  }
  EXPECT_EQ(ParseToolFormat("xml").error().message,
            "there is no tool call parser 'xml'; known are none, hermes, llama3_json, pythonic, mistral, "
            "mistral_args, generic");
}

TEST(Dialect, Reasoning) {
  EXPECT_TRUE(ReasoningInTemplate(Template("qwen3")));
  EXPECT_FALSE(ReasoningInTemplate(Template("qwen2_5")));
  EXPECT_TRUE(PromptEndsInReasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(PromptEndsInReasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(PromptEndsInReasoning(""));
}

TEST(Dialect, Markers) {
  EXPECT_THAT(MarkersOf(ToolFormat::kNone), testing::ElementsAre("<think>", "</think>"));
  EXPECT_THAT(MarkersOf(ToolFormat::kHermes), testing::IsSupersetOf({"<tool_call>", "</tool_call>"}));
  EXPECT_THAT(MarkersOf(ToolFormat::kMistral), testing::Contains("[TOOL_CALLS]"));
  EXPECT_THAT(MarkersOf(ToolFormat::kLlamaJson), testing::Contains("<|python_tag|>"));
  EXPECT_THAT(MarkersOf(ToolFormat::kPythonic), testing::Contains("<|python_start|>"));
}

}  // namespace
}  // namespace tandem
