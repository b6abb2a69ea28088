#include "dialect/call_tags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dialect/answer_testing.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Mode = ToolChoice::Mode;

constexpr ToolFormat kCallFormats[] = {ToolFormat::kHermes,  ToolFormat::kLlamaJson,   ToolFormat::kPythonic,
                                       ToolFormat::kMistral, ToolFormat::kMistralArgs, ToolFormat::kGeneric};

std::vector<ToolSpec> SomeTools() {
  return {
      {.name = "f",
       .parameters = Json::parse(R"({"properties": {"a": {"type": "string"}}, "required": ["a"]})"),
       .strict = true},
      {.name = "g", .parameters = Json::parse(R"({"type": "object", "properties": {"b": {"$ref": "#/$defs/B"},
             "c": {"type": "string"}}, "$defs": {"B": {"type": "string"}}})")},
      {.name = "h"}};
}

// What a schema may admit: enough for the schemas here.
std::string Instance(const Json& schema) {
  if (schema.contains("$ref"))
    return Instance(schema.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))));
  if (schema.value("type", "") == "string") return R"("s}\"")";
  std::string text = "{";
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, property] : properties.items()) {
    Json inner = property;
    if (schema.contains("$defs")) inner["$defs"] = schema["$defs"];
    text += (text.size() > 1 ? ", " : "") + Json(name).dump() + ": " + Instance(inner);
  }
  return text + "}";
}

std::vector<std::string> Combined(const std::vector<std::string>& before,
                                  const std::vector<std::string>& after) {
  std::vector<std::string> all;
  for (const auto& left : before) {
    for (const auto& right : after) all.push_back(left + right);
  }
  return all;
}

// Some of the texts that a format admits: each alternative, and of what may repeat none, one and two.
std::vector<std::string> Texts(const Json& format) {
  const auto type = format.at("type").get<std::string>();
  if (type == "const_string") return {format.at("value").get<std::string>()};
  if (type == "any_text") return {"thought <tool_call>[TOOL_CALLS]"};
  if (type == "regex") return {"", "\n\n"};
  if (type == "json_schema") return {Instance(format.at("json_schema"))};
  if (type == "tag") {
    return Combined(Combined({format.at("begin").get<std::string>()}, Texts(format.at("content"))),
                    {format.at("end").get<std::string>()});
  }
  std::vector<std::string> all;
  if (type == "sequence") {
    all = {""};
    for (const Json& element : format.at("elements")) all = Combined(all, Texts(element));
    return all;
  }
  if (type == "or") {
    for (const Json& element : format.at("elements")) {
      for (auto& text : Texts(element)) all.push_back(text);
    }
    return all;
  }
  if (type == "optional" || type == "star") {
    all = Texts(format.at("content"));
    all.emplace_back();
    return all;
  }
  EXPECT_TRUE(type == "tags_with_separator" || type == "triggered_tags") << type;
  for (const Json& tag : format.at("tags")) {
    for (auto& text : Texts(tag)) all.push_back(text);
  }
  if (format.at("stop_after_first") == false) {
    const auto one = all;
    for (auto& text : Combined(Combined(one, {format.value("separator", "\n")}), one)) all.push_back(text);
  }
  return all;
}

struct ReadAnswer {
  std::vector<std::string> calls;
  std::string text;
  std::string reasoning;
};

ReadAnswer Read(const CallTagOptions& options, const std::string& answer) {
  const auto parser = MakeAnswerParser({.format = options.format,
                                        .reasoning = options.reasoning != ReasoningPlace::kNone,
                                        .starts_in_reasoning = options.reasoning == ReasoningPlace::kInside,
                                        .tools = {"f", "g", "h"}});
  std::vector<AnswerPart> parts;
  parser->Append(answer, &parts);
  parser->Finish(&parts);
  ReadAnswer read;
  std::string arguments;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        read.text += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        read.reasoning += part.text;
        break;
      case AnswerPart::Kind::kCallBegin:
        read.calls.push_back(part.text);
        break;
      case AnswerPart::Kind::kCallArguments:
        arguments += part.text;
        break;
      case AnswerPart::Kind::kCallEnd:
        EXPECT_TRUE(Json::parse(arguments, nullptr, false).is_object()) << arguments << " in " << answer;
        arguments.clear();
        break;
    }
  }
  return read;
}

// Reads all texts; returns the largest number of calls in one.
size_t ExpectCallsOnly(const Json& tag, const CallTagOptions& options) {
  EXPECT_EQ(tag.at("type"), "structural_tag");
  size_t most = 0;
  for (const std::string& answer : Texts(tag.at("format"))) {
    const ReadAnswer read = Read(options, answer);
    EXPECT_EQ(read.text, "") << answer;
    EXPECT_GE(read.calls.size(), 1U) << answer;
    most = std::max(most, read.calls.size());
  }
  return most;
}

TEST(CallTags, ForcedCallsAreReadAsCalls) {
  for (const ToolFormat format : kCallFormats) {
    for (const ReasoningPlace place :
         {ReasoningPlace::kNone, ReasoningPlace::kMayBegin, ReasoningPlace::kInside}) {
      SCOPED_TRACE(ToolFormatName(format));
      CallTagOptions options = {.format = format, .reasoning = place};
      const ToolChoice required = {.mode = Mode::kRequired};
      EXPECT_EQ(ExpectCallsOnly(ForcedCallTag(SomeTools(), required, options), options), 2U);
      const ToolChoice named = {.mode = Mode::kRequired, .allowed = {"g"}, .is_named = true};
      EXPECT_EQ(ExpectCallsOnly(ForcedCallTag(SomeTools(), named, options), options), 1U);
      options.parallel = false;
      EXPECT_EQ(ExpectCallsOnly(ForcedCallTag(SomeTools(), required, options), options), 1U);
    }
  }
}

TEST(CallTags, OnlyAllowedToolsAreCalled) {
  for (const ToolFormat format : kCallFormats) {
    const CallTagOptions options = {.format = format};
    const ToolChoice some = {.mode = Mode::kRequired, .allowed = {"h", "f"}};
    std::vector<std::string> called;
    for (const std::string& answer : Texts(ForcedCallTag(SomeTools(), some, options).at("format"))) {
      for (auto& name : Read(options, answer).calls) called.push_back(name);
    }
    EXPECT_EQ(std::ranges::count(called, "g"), 0) << ToolFormatName(format);
    EXPECT_GT(std::ranges::count(called, "f"), 0);
    EXPECT_GT(std::ranges::count(called, "h"), 0);
  }
}

TEST(CallTags, ReasoningStaysFree) {
  const ToolChoice required = {.mode = Mode::kRequired};
  const CallTagOptions inside = {.reasoning = ReasoningPlace::kInside, .parallel = false};
  for (const std::string& answer : Texts(ForcedCallTag(SomeTools(), required, inside).at("format"))) {
    EXPECT_EQ(Read(inside, answer).reasoning, "thought <tool_call>[TOOL_CALLS]") << answer;
  }
}

TEST(CallTags, WithoutStrictToolsNothingIsEnforced) {
  EXPECT_TRUE(AutoCallTag({{.name = "f"}}, {}, {}).is_null());
  EXPECT_TRUE(AutoCallTag(SomeTools(), {.allowed = {"g", "h"}}, {}).is_null());
  EXPECT_TRUE(AutoCallTag(SomeTools(), {.mode = Mode::kNone}, {}).is_null());
}

TEST(CallTags, CallsOfAFreeAnswer) {
  for (const ToolFormat format : kCallFormats) {
    for (const bool parallel : {true, false}) {
      SCOPED_TRACE(ToolFormatName(format));
      const CallTagOptions options = {.format = format, .parallel = parallel};
      const Json tag = AutoCallTag(SomeTools(), {}, options);
      const Json& free = tag.at("format");
      EXPECT_EQ(free.at("type"), "triggered_tags");
      EXPECT_EQ(free.at("stop_after_first"), !parallel);
      for (const Json& call : free.at("tags")) {
        // As xgrammar demands: each tag has one trigger that it begins with.
        const auto begin = call.at("begin").get<std::string>();
        EXPECT_EQ(std::ranges::count_if(
                      free.at("triggers"),
                      [&](const Json& trigger) { return begin.starts_with(trigger.get<std::string>()); }),
                  1);
        for (const std::string& answer : Texts(call)) {
          const ReadAnswer read = Read(options, answer);
          EXPECT_EQ(read.text, "") << answer;
          EXPECT_GE(read.calls.size(), 1U) << answer;
          EXPECT_LE(read.calls.size(), parallel ? 2U : 1U) << answer;
        }
      }
    }
  }
}

TEST(CallTags, OnlyStrictToolsFollowTheirSchemaFreely) {
  const Json tag = AutoCallTag(SomeTools(), {}, {});
  const Json& tags = tag.at("format").at("tags");
  EXPECT_EQ(tags[0]["content"]["json_schema"]["required"], Json({"a"}));
  EXPECT_EQ(tags[0]["content"]["json_schema"]["type"], "object");
  EXPECT_EQ(tags[1]["content"]["json_schema"], Json({{"type", "object"}}));
}

}  // namespace
}  // namespace tandem
