#include "server/chat_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "dialect/call_tags.h"
#include "server/field_reader.h"
#include "server/json_text.h"
#include "server/structured_output.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxToolNameBytes = 256;
constexpr std::array<std::string_view, 8> kCloudTools = {
    "web_search",     "web_fetch",        "file_search", "code_interpreter",
    "code_execution", "image_generation", "mcp",         "computer_use"};

// Such tools have no schema that a model could be shown: they are dropped. Vendors add dates to the types.
bool RunsInVendorsCloud(const ordered_json& tool) {
  const auto type = tool.find("type");
  if (type == tool.end() || !type->is_string()) return false;
  const auto& name = type->get_ref<const std::string&>();
  return std::any_of(kCloudTools.begin(), kCloudTools.end(),
                     [&](std::string_view cloud_tool) { return name.starts_with(cloud_tool); });
}

std::optional<ApiError> ReadTool(const ordered_json& tool, const std::string& param, ToolSpec* spec) {
  FieldReader fields(tool, param + ".");
  const auto type = fields.String("type");
  const ordered_json* function = fields.Object("function");
  if (fields.error()) return fields.error();
  if (type && *type != "function") {
    return InvalidRequest(param + ".type", fmt::format("{}.type: tools of type \"{}\" are not served, only "
                                                       "\"function\" is",
                                                       param, *type));
  }
  if (function == nullptr) return InvalidRequest(param + ".function", param + ".function is missing");
  FieldReader parts(*function, param + ".function.");
  spec->name = parts.String("name").value_or("");
  spec->description = parts.String("description").value_or("");
  spec->strict = parts.Bool("strict").value_or(false);
  if (const ordered_json* parameters = parts.Object("parameters")) spec->parameters = *parameters;
  if (parts.error()) return parts.error();
  if (spec->name.empty() || spec->name.size() > kMaxToolNameBytes) {
    return InvalidRequest(param + ".function.name",
                          fmt::format("{}.function.name must have 1 to {} bytes", param, kMaxToolNameBytes));
  }
  return std::nullopt;
}

std::optional<ApiError> ReadToolList(const ordered_json& list, std::vector<ToolSpec>* specs) {
  if (!list.is_array()) {
    return InvalidRequest("tools", fmt::format("tools must be a list, not {}", JsonTypeName(list)));
  }
  if (list.size() > kMaxTools) {
    return InvalidRequest("tools",
                          fmt::format("a request takes at most {} tools, got {}", kMaxTools, list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string param = fmt::format("tools[{}]", i);
    if (!list[i].is_object()) {
      return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(list[i])));
    }
    if (RunsInVendorsCloud(list[i])) continue;
    ToolSpec spec;
    if (auto error = ReadTool(list[i], param, &spec)) return error;
    const bool is_known = std::any_of(specs->begin(), specs->end(),
                                      [&](const ToolSpec& other) { return other.name == spec.name; });
    if (is_known) {
      return InvalidRequest(param + ".function.name",
                            fmt::format("{}.function.name: there are two tools called {}", param, spec.name));
    }
    specs->push_back(std::move(spec));
  }
  return std::nullopt;
}

ReasoningPlace PlaceOf(const AnswerParserOptions& parser) {
  if (!parser.reasoning) return ReasoningPlace::kNone;
  return parser.starts_in_reasoning ? ReasoningPlace::kInside : ReasoningPlace::kMayBegin;
}

// style: of the JSON in it, that of what the request says itself.
GrammarSpec TagSpec(const ordered_json& tag, const GrammarSpec& style = {}) {
  return {.kind = GrammarSpec::Kind::kStructuralTag,
          .text = DumpJson(tag),
          .any_whitespace = style.any_whitespace,
          .strict = style.strict};
}

// Of an answer that may call tools. answer: what it has to follow where it does not; none: it is free then.
std::optional<AnswerGrammar> GrammarWithCalls(const ChatTools& tools, const AnswerParserOptions& parser,
                                              const std::optional<AnswerGrammar>& answer) {
  CallTagOptions options{.format = parser.format, .reasoning = PlaceOf(parser), .parallel = tools.parallel};
  if (tools.choice.mode == ToolChoice::Mode::kRequired)
    return AnswerGrammar{.spec = TagSpec(ForcedCallTag(tools.offered, tools.choice, options)),
                         .param = "tools"};
  if (answer) {
    options.reasoning = ReasoningPlace::kNone;
    ordered_json either = {
        {"type", "or"},
        {"elements",
         {ForcedCallTag(tools.offered, tools.choice, options)["format"], StructuralFormatOf(answer->spec)}}};
    return AnswerGrammar{.spec = TagSpec(TagAfterReasoning(PlaceOf(parser), std::move(either)), answer->spec),
                         .param = answer->param};
  }
  const ordered_json tag = AutoCallTag(tools.offered, tools.choice, options);
  if (tag.is_null()) return std::nullopt;
  return AnswerGrammar{.spec = TagSpec(tag), .param = "tools"};
}

std::vector<int32_t> ShownTokens(const AnswerParserOptions& parser, const Tokenizer& tokenizer) {
  std::vector<int32_t> shown;
  if (parser.format == ToolFormat::kNone && !parser.reasoning) return shown;
  for (const std::string& marker : MarkersOf(parser.format)) {
    const auto id = tokenizer.TokenToId(marker);
    if (id && tokenizer.IsSpecial(*id)) shown.push_back(*id);
  }
  return shown;
}

}  // namespace

std::optional<ApiError> ReadChatTools(const ordered_json& body, ChatTools* tools) {
  FieldReader fields(body);
  tools->parallel = fields.Bool("parallel_tool_calls").value_or(true);
  if (fields.error()) return fields.error();
  if (const ordered_json* list = fields.Find("tools")) {
    if (auto error = ReadToolList(*list, &tools->offered)) return error;
  }
  const ordered_json* choice = fields.Find("tool_choice");
  auto parsed = ParseToolChoice(choice == nullptr ? ordered_json(nullptr) : *choice, tools->offered);
  if (!parsed.ok()) return FromError(parsed.error());
  tools->choice = std::move(*parsed);
  tools->offered = AllowedTools(tools->offered, tools->choice);
  if (tools->choice.mode == ToolChoice::Mode::kRequired && tools->offered.empty())
    return InvalidRequest("tool_choice", "tool_choice requires a call, but no tool is offered");
  return std::nullopt;
}

std::optional<ApiError> ReadAnswerForm(const ordered_json& body, const ModelContext& model,
                                       const ChatTools& tools, std::string_view prompt,
                                       GenerationRequest* request) {
  AnswerParserOptions& parser = request->parser;
  parser.reasoning = model.reasons;
  parser.starts_in_reasoning = model.reasons && PromptEndsInReasoning(prompt);
  if (!tools.offered.empty()) parser.format = model.tool_format;
  for (const ToolSpec& tool : tools.offered) parser.tools.push_back(tool.name);
  request->shown_special_tokens = ShownTokens(parser, *model.tokenizer);
  request->one_call = !tools.parallel;
  if (parser.format == ToolFormat::kNone && tools.choice.mode == ToolChoice::Mode::kRequired) {
    return InvalidRequest("tool_choice",
                          "tool_choice: no call can be required, as the server's --tool-call-parser is none");
  }
  std::optional<AnswerGrammar> answer;
  if (auto error = ReadAnswerGrammar(body, &answer)) return error;
  if (parser.format != ToolFormat::kNone) {
    answer = GrammarWithCalls(tools, parser, answer);
  } else if (answer && parser.reasoning) {
    answer->spec =
        TagSpec(TagAfterReasoning(PlaceOf(parser), StructuralFormatOf(answer->spec)), answer->spec);
  }
  request->grammar_spec = std::move(answer);
  return std::nullopt;
}

}  // namespace tandem
