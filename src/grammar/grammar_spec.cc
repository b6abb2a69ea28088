#include "grammar/grammar_spec.h"

#include <fmt/format.h>

namespace tandem {

std::string CanonicalKey(const GrammarSpec& spec) {
  const bool has_schemas =
      spec.kind == GrammarSpec::Kind::kJsonSchema || spec.kind == GrammarSpec::Kind::kStructuralTag;
  const bool has_json = has_schemas || spec.kind == GrammarSpec::Kind::kJsonObject;
  std::string key =
      fmt::format("{}{}{}:", static_cast<int>(spec.kind), has_json && spec.any_whitespace ? "w" : "",
                  has_schemas && spec.strict ? "s" : "");
  if (spec.kind == GrammarSpec::Kind::kChoice) {
    for (const std::string& choice : spec.choices) key += fmt::format("{}:{}", choice.size(), choice);
  } else if (spec.kind != GrammarSpec::Kind::kJsonObject) {
    key += spec.text;
  }
  return key;
}

std::string_view KindName(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonObject:
      return "JSON object";
    case GrammarSpec::Kind::kJsonSchema:
      return "JSON schema";
    case GrammarSpec::Kind::kRegex:
      return "regular expression";
    case GrammarSpec::Kind::kChoice:
      return "list of choices";
    case GrammarSpec::Kind::kEbnf:
      return "grammar";
    case GrammarSpec::Kind::kStructuralTag:
      return "structural tag";
  }
  return "";
}

size_t SpecBytes(const GrammarSpec& spec) {
  size_t bytes = spec.text.size();
  for (const std::string& choice : spec.choices) bytes += choice.size();
  return bytes;
}

}  // namespace tandem
