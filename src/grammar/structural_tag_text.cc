#include "grammar/structural_tag_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "grammar/expression.h"
#include "grammar/json_schema_document.h"
#include "grammar/regex_parser.h"

namespace tandem {
namespace {

Error At(const std::string& pointer, const Error& error) {
  return {.code = error.code, .message = pointer + ": " + error.message, .param = error.param};
}

class TagRewriter {
 public:
  explicit TagRewriter(const JsonStyle& style) : style_(style) {}

  Status Rewrite(const std::string& pointer, Json* node) const {
    if (node->is_object()) {
      const std::string type =
          node->value("type", Json()).is_string() ? (*node)["type"].get<std::string>() : "";
      if (type == "json_schema") return RewriteSchema(pointer, node);
      if (type == "regex") return RewriteRegex(pointer, node);
      for (const char* key : {"json_schema", "style"}) {
        if (!node->contains(key)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}/{}: only parts of the type json_schema have a schema that is held to", pointer,
                         key);
      }
      for (auto& [key, value] : node->items())
        TANDEM_RETURN_IF_ERROR(Rewrite(fmt::format("{}/{}", pointer, key), &value));
    } else if (node->is_array()) {
      for (size_t i = 0; i < node->size(); ++i)
        TANDEM_RETURN_IF_ERROR(Rewrite(fmt::format("{}/{}", pointer, i), &(*node)[i]));
    }
    return {};
  }

 private:
  Status RewriteSchema(const std::string& pointer, Json* node) const {
    if (node->contains("style") && (*node)["style"] != "json")
      return MakeError(ErrorCode::kUnsupported, "{}/style: only json is held to its schema", pointer);
    const auto schema = node->find("json_schema");
    if (schema == node->end())
      return MakeError(ErrorCode::kInvalidArgument, "{}: json_schema is missing", pointer);
    auto grammar = GrammarOfJsonSchema(schema->dump(), style_);
    if (!grammar.ok()) return At(pointer + "/json_schema", grammar.error());
    *node = Json{{"type", "grammar"}, {"grammar", std::move(*grammar)}};
    return {};
  }

  Status RewriteRegex(const std::string& pointer, Json* node) const {
    const auto pattern = node->find("pattern");
    if (pattern == node->end() || !pattern->is_string())
      return MakeError(ErrorCode::kInvalidArgument, "{}: pattern is missing", pointer);
    if (node->contains("excludes"))
      return MakeError(ErrorCode::kUnsupported, "{}/excludes: this is not supported", pointer);
    auto expression = ParseRegex(pattern->get_ref<const std::string&>());
    if (!expression.ok()) return At(pointer + "/pattern", expression.error());
    *node = Json{{"type", "grammar"}, {"grammar", PrintGrammar(*expression)}};
    return {};
  }

  JsonStyle style_;
};

}  // namespace

Result<std::string> StructuralTagText(std::string_view tag, const JsonStyle& style) {
  TANDEM_ASSIGN_OR_RETURN(Json json, ParseJsonText(tag, "structural tag"));
  if (!json.is_object() || !json.contains("format"))
    return MakeError(ErrorCode::kInvalidArgument, "#: a structural tag has a \"format\"");
  TANDEM_RETURN_IF_ERROR(TagRewriter(style).Rewrite("#/format", &json["format"]));
  return json.dump();
}

}  // namespace tandem
