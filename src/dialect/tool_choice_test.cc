#include "dialect/tool_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsEmpty;
using Mode = ToolChoice::Mode;

const std::vector<ToolSpec> kOffered = {{.name = "f"}, {.name = "g"}, {.name = "h"}};

ToolChoice Choice(const char* json) {
  auto choice = ParseToolChoice(Json::parse(json), kOffered);
  EXPECT_TRUE(choice.ok()) << json << ": " << choice.error().message;
  return choice.ok() ? *choice : ToolChoice{};
}

std::string ErrorOf(const char* json) {
  const auto choice = ParseToolChoice(Json::parse(json), kOffered);
  EXPECT_FALSE(choice.ok()) << json;
  if (choice.ok()) return "";
  EXPECT_EQ(choice.error().param, "tool_choice");
  return choice.error().message;
}

std::vector<std::string> AllowedNames(const ToolChoice& choice) {
  std::vector<std::string> names;
  for (const ToolSpec& tool : AllowedTools(kOffered, choice)) names.push_back(tool.name);
  return names;
}

TEST(ToolChoice, Words) {
  EXPECT_EQ(Choice("null").mode, Mode::kAuto);
  EXPECT_EQ(Choice("\"auto\"").mode, Mode::kAuto);
  EXPECT_EQ(Choice("\"required\"").mode, Mode::kRequired);
  EXPECT_THAT(AllowedNames(Choice("\"required\"")), ElementsAre("f", "g", "h"));
  EXPECT_EQ(Choice("\"none\"").mode, Mode::kNone);
  EXPECT_THAT(AllowedNames(Choice("\"none\"")), IsEmpty());
}

TEST(ToolChoice, ANamedFunction) {
  for (const char* json :
       {R"({"type": "function", "function": {"name": "g"}})", R"({"type": "function", "name": "g"})"}) {
    const ToolChoice choice = Choice(json);
    EXPECT_EQ(choice.mode, Mode::kRequired);
    EXPECT_TRUE(choice.is_named);
    EXPECT_THAT(AllowedNames(choice), ElementsAre("g"));
  }
}

TEST(ToolChoice, AllowedToolsAreSome) {
  ToolChoice choice = Choice(R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
      "tools": [{"type": "function", "function": {"name": "h"}}, {"type": "function", "function": {"name": "f"}}]}})");
  EXPECT_EQ(choice.mode, Mode::kRequired);
  EXPECT_FALSE(choice.is_named);
  EXPECT_THAT(AllowedNames(choice), ElementsAre("f", "h"));
  choice =
      Choice(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "h"}]})");
  EXPECT_EQ(choice.mode, Mode::kAuto);
  EXPECT_THAT(AllowedNames(choice), ElementsAre("h"));
}

TEST(ToolChoice, Errors) {
  EXPECT_EQ(ErrorOf(R"({"type": "function", "function": {"name": "x"}})"),
            "tool_choice names 'x', which is not one of the tools");
  EXPECT_EQ(ErrorOf(R"({"type": "function"})"), "tool_choice lacks the name of the function");
  EXPECT_EQ(ErrorOf(R"({"type": "custom", "name": "f"})"),
            "tool_choice can name tools of type \"function\" only");
  EXPECT_EQ(ErrorOf(R"({"type": "allowed_tools", "tools": []})"),
            "tool_choice lacks the list of allowed tools");
  for (const char* json :
       {"\"never\"", "5", "[]", R"({"type": "allowed_tools", "mode": "x", "tools": [1]})"}) {
    EXPECT_EQ(ErrorOf(json),
              "tool_choice must be \"none\", \"auto\", \"required\" or an object that names functions");
  }
  EXPECT_FALSE(ParseToolChoice("required", {}).ok());
}

}  // namespace
}  // namespace tandem
