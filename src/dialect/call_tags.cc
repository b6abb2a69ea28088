#include "dialect/call_tags.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "dialect/pythonic_tags.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json Tag(std::string begin, Json content, std::string end) {
  return {
      {"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", std::move(end)}};
}

Json Text(std::string value) {
  return {{"type", "const_string"}, {"value", std::move(value)}};
}

Json Sequence(std::vector<Json> elements) {
  if (elements.size() == 1) return elements.front();
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

// The schema of a tool's arguments. An object is what calls have, whatever the tool says.
Json ArgumentsSchema(const ToolSpec& tool, bool follows_schema) {
  if (!follows_schema || !tool.parameters.is_object() || tool.parameters.empty()) return {{"type", "object"}};
  Json schema = tool.parameters;
  const bool says_what_it_is = schema.contains("$ref") || schema.contains("anyOf") ||
                               schema.contains("oneOf") || schema.contains("allOf");
  if (!schema.contains("type") && !says_what_it_is) schema["type"] = "object";
  return schema;
}

std::string Quoted(const std::string& name) {
  return Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// How the calls of a format are laid out.
struct CallLayout {
  std::string block_begin;  // before the first of several calls, once
  std::string block_end;
  std::string separator;  // between calls
};

CallLayout LayoutOf(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kGeneric:
      return {.separator = "\n"};
    case ToolFormat::kLlamaJson:
      return {.separator = "; "};
    case ToolFormat::kMistral:
      return {.block_begin = std::string(kMistralCalls) + " [", .block_end = "]", .separator = ", "};
    case ToolFormat::kMistralArgs:
      return {};
    case ToolFormat::kPythonic:
      return {.block_begin = "[", .block_end = "]", .separator = ", "};
    case ToolFormat::kNone:
      break;
  }
  TANDEM_CHECK(false, "no calls, so they have no layout");
  return {};
}

Json CallTag(ToolFormat format, const ToolSpec& tool, bool follows_schema) {
  const Json schema = ArgumentsSchema(tool, follows_schema);
  const Json arguments = {{"type", "json_schema"}, {"json_schema", schema}};
  const std::string name = Quoted(tool.name);
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kGeneric:
      return Tag(std::string(kToolCallBegin) + "\n{\"name\": " + name + ", \"arguments\": ", arguments,
                 "}\n" + std::string(kToolCallEnd));
    case ToolFormat::kLlamaJson:
      return Tag("{\"name\": " + name + ", \"parameters\": ", arguments, "}");
    case ToolFormat::kMistral:
      return Tag("{\"name\": " + name + ", \"arguments\": ", arguments, "}");
    case ToolFormat::kMistralArgs:
      return Tag(std::string(kMistralCalls) + tool.name + std::string(kMistralArguments), arguments, "");
    case ToolFormat::kPythonic:
      return Tag(tool.name + "(", PythonicArgumentsFormat(schema), ")");
    case ToolFormat::kNone:
      break;
  }
  TANDEM_CHECK(false, "no calls, so they have no tag");
  return {};
}

Json Calls(std::vector<Json> tags, const std::string& separator, bool parallel, bool at_least_one) {
  return {{"type", "tags_with_separator"},
          {"tags", std::move(tags)},
          {"separator", separator},
          {"at_least_one", at_least_one},
          {"stop_after_first", !parallel}};
}

}  // namespace

Json TagAfterReasoning(ReasoningPlace place, Json rest) {
  const Json gap = {{"type", "regex"}, {"pattern", "\\n{0,2}"}};
  std::vector<Json> elements;
  if (place != ReasoningPlace::kNone) {
    const bool is_inside = place == ReasoningPlace::kInside;
    Json thought =
        Tag(is_inside ? "" : std::string(kThinkBegin), {{"type", "any_text"}}, std::string(kThinkEnd));
    thought = Sequence({std::move(thought), gap});
    if (!is_inside) thought = {{"type", "optional"}, {"content", std::move(thought)}};
    elements.push_back(std::move(thought));
  }
  elements.push_back(std::move(rest));
  return {{"type", "structural_tag"}, {"format", Sequence(std::move(elements))}};
}

Json ForcedCallTag(const std::vector<ToolSpec>& tools, const ToolChoice& choice,
                   const CallTagOptions& options) {
  std::vector<Json> tags;
  for (const ToolSpec& tool : AllowedTools(tools, choice))
    tags.push_back(CallTag(options.format, tool, true));
  TANDEM_CHECK(!tags.empty(), "a call is forced, but no tool is allowed");
  const CallLayout layout = LayoutOf(options.format);
  Json calls = Calls(std::move(tags), layout.separator, options.parallel && !choice.is_named, true);
  if (!layout.block_begin.empty()) {
    calls = Sequence({Text(layout.block_begin), std::move(calls), Text(layout.block_end)});
  }
  return TagAfterReasoning(options.reasoning, std::move(calls));
}

Json AutoCallTag(const std::vector<ToolSpec>& tools, const ToolChoice& choice,
                 const CallTagOptions& options) {
  const std::vector<ToolSpec> allowed = AllowedTools(tools, choice);
  if (std::ranges::none_of(allowed, &ToolSpec::strict)) return nullptr;
  const CallLayout layout = LayoutOf(options.format);
  std::vector<Json> tags;
  tags.reserve(allowed.size());
  for (const ToolSpec& tool : allowed) tags.push_back(CallTag(options.format, tool, tool.strict));

  std::vector<std::string> triggers;
  if (options.format == ToolFormat::kMistral) {
    // One trigger for the whole list.
    triggers.push_back(std::string(kMistralCalls));
    tags = {Tag(layout.block_begin, Calls(std::move(tags), layout.separator, options.parallel, true),
                layout.block_end)};
  } else if (options.format == ToolFormat::kPythonic) {
    // The list begins with one of the calls; the others follow in it.
    const Json more =
        options.parallel ? Json{{"type", "star"},
                                {"content", Sequence({Text(layout.separator), Calls(tags, "", false, true)})}}
                         : Text("");
    for (Json& tag : tags) {
      tag["begin"] = layout.block_begin + tag["begin"].get<std::string>();
      triggers.push_back(tag["begin"]);
      if (options.parallel) {
        tag["content"] = Sequence({std::move(tag["content"]), Text(")"), more});
        tag["end"] = layout.block_end;
      } else {
        tag["end"] = ")" + layout.block_end;
      }
    }
  } else if (options.format == ToolFormat::kLlamaJson) {
    // Without a marker, only a whole beginning tells a call from other JSON.
    for (const Json& tag : tags) triggers.push_back(tag["begin"]);
  } else {
    triggers.emplace_back(options.format == ToolFormat::kMistralArgs ? kMistralCalls : kToolCallBegin);
  }
  return TagAfterReasoning(options.reasoning, {{"type", "triggered_tags"},
                                               {"triggers", std::move(triggers)},
                                               {"tags", std::move(tags)},
                                               {"at_least_one", false},
                                               {"stop_after_first", !options.parallel}});
}

}  // namespace tandem
