#include "grammar/structural_tag_grammar.h"

#include <algorithm>
#include <set>
#include <utility>

#include "grammar/ebnf_check.h"
#include "grammar/expression.h"
#include "grammar/json_schema_document.h"
#include "grammar/regex_parser.h"

namespace tandem {
namespace {

constexpr double kMaxTagRepetitions = 1'000;

Error InTag(const std::string& at, const Error& error) {
  return MakeError(error.code, "{} of the structural tag: {}", at, error.message);
}
Error WrongTag(const std::string& at, std::string_view what, ErrorCode code = ErrorCode::kInvalidArgument) {
  return MakeError(code, "{} of the structural tag: {}", at, what);
}

bool IsKnownFormat(std::string_view type) {
  static const std::set<std::string_view> types = {"structural_tag",
                                                   "const_string",
                                                   "json_schema",
                                                   "grammar",
                                                   "regex",
                                                   "any_text",
                                                   "sequence",
                                                   "or",
                                                   "optional",
                                                   "plus",
                                                   "star",
                                                   "repeat",
                                                   "tag",
                                                   "triggered_tags",
                                                   "tags_with_separator",
                                                   "dispatch",
                                                   "token",
                                                   "exclude_token",
                                                   "any_tokens",
                                                   "token_triggered_tags",
                                                   "token_dispatch"};
  return types.contains(type);
}

Json GrammarPart(std::string grammar) {
  return {{"type", "grammar"}, {"grammar", std::move(grammar)}};
}

Result<Json> PrepareSchema(const Json& part, const std::string& at, const JsonStyle& style) {
  for (const auto& [key, value] : part.items()) {
    const bool changes_nothing =
        key == "type" || key == "json_schema" || (key == "style" && value == "json") ||
        (key == "any_order" && value == false) || (key == "excludes" && value == Json::array());
    if (!changes_nothing)
      return WrongTag(JoinPointer(at, key), "this is not supported", ErrorCode::kUnsupported);
  }
  if (!part.contains("json_schema")) return WrongTag(at, "there is no `json_schema`");
  const Result<std::string> grammar = GrammarOfJsonSchema(part["json_schema"].dump(), style);
  if (!grammar.ok()) return InTag(JoinPointer(at, "json_schema"), grammar.error());
  return GrammarPart(*grammar);
}

Result<Json> PrepareRegex(const Json& part, const std::string& at) {
  if (!part.contains("pattern") || !part["pattern"].is_string() || part.size() != 2)
    return WrongTag(at, "a `regex` has a `pattern`, and nothing else is supported");
  const Result<Expression> expression = ParseRegex(part["pattern"].get<std::string>());
  if (!expression.ok()) return InTag(JoinPointer(at, "pattern"), expression.error());
  if (CompileCost(*expression) > kMaxCompileCost) return WrongTag(at, "the regular expression is too large");
  return GrammarPart(PrintGrammar(*expression));
}

bool IsOfOlderForm(const Json& part) {
  return part.is_object() && part.contains("structures") &&
         (!part.contains("type") || part["type"] == "structural_tag");
}

// The format that the older form of a structural tag stands for.
Result<Json> FormatOfStructures(const Json& tag, const std::string& at) {
  if (!tag["structures"].is_array() || !tag.contains("triggers"))
    return WrongTag(at, "`structures` are an array, with `triggers` beside it");
  Json tags = Json::array();
  for (const Json& structure : tag["structures"]) {
    if (!structure.is_object() || !structure.contains("begin") || !structure.contains("schema") ||
        !structure.contains("end"))
      return WrongTag(JoinPointer(at, "structures"), "each has `begin`, `schema` and `end`");
    tags.push_back({{"type", "tag"},
                    {"begin", structure["begin"]},
                    {"content", {{"type", "json_schema"}, {"json_schema", structure["schema"]}}},
                    {"end", structure["end"]}});
  }
  return Json{{"type", "triggered_tags"}, {"triggers", tag["triggers"]}, {"tags", std::move(tags)}};
}

Result<Json> Prepare(const Json& part, const std::string& at, const JsonStyle& style) {
  if (!part.is_structured()) return part;
  if (IsOfOlderForm(part)) {
    TANDEM_ASSIGN_OR_RETURN(const Json format, FormatOfStructures(part, at));
    return Prepare(format, at, style);
  }
  // xgrammar guesses what has no type.
  for (const auto& [key, type] :
       {std::pair("json_schema", "json_schema"), {"pattern", "regex"}, {"grammar", "grammar"}})
    if (part.is_object() && !part.contains("type") && part.contains(key)) {
      Json typed = part;
      typed["type"] = type;
      return Prepare(typed, at, style);
    }
  if (part.is_object() && part.contains("type")) {
    const std::string type = part["type"].is_string() ? part["type"].get<std::string>() : "";
    if (!IsKnownFormat(type))
      return WrongTag(JoinPointer(at, "type"), "this type is not supported", ErrorCode::kUnsupported);
    if (type == "json_schema") return PrepareSchema(part, at, style);
    if (type == "regex") return PrepareRegex(part, at);
    if (type == "grammar" && part.contains("grammar") && part["grammar"].is_string()) {
      const Status status = CheckEbnf(part["grammar"].get<std::string>());
      if (!status.ok()) return InTag(JoinPointer(at, "grammar"), status.error());
    }
    for (const char* bound : {"min", "max"})
      if (type == "repeat" && part.contains(bound) && part[bound].is_number() &&
          part[bound] > kMaxTagRepetitions)
        return WrongTag(JoinPointer(at, bound),
                        fmt::format("more than {} times are not supported", kMaxTagRepetitions));
  }
  Json prepared = part;
  size_t index = 0;
  for (const auto& [key, value] : part.items()) {
    TANDEM_ASSIGN_OR_RETURN(Json inner, Prepare(value, JoinPointer(at, key), style));
    if (part.is_array()) {
      prepared[index++] = std::move(inner);
    } else {
      prepared[key] = std::move(inner);
    }
  }
  return prepared;
}

}  // namespace

Result<std::string> PrepareStructuralTag(std::string_view tag, const JsonStyle& style) {
  TANDEM_ASSIGN_OR_RETURN(Json parsed, ParseJsonText(tag, "structural tag"));
  if (!parsed.is_object()) return WrongTag("#", "it is an object");
  if (IsOfOlderForm(parsed)) {
    TANDEM_ASSIGN_OR_RETURN(Json format, Prepare(parsed, "#", style));
    return Json{{"type", "structural_tag"}, {"format", std::move(format)}}.dump();
  }
  if (!parsed.contains("format") || !parsed["format"].is_object())
    return WrongTag("#", "there is no `format`");
  TANDEM_ASSIGN_OR_RETURN(const Json prepared, Prepare(parsed, "#", style));
  return prepared.dump();
}

}  // namespace tandem
