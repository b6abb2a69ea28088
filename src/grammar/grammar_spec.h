// What a request says its answer has to follow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct GrammarSpec {
  enum class Kind {
    kJsonObject,     // any JSON object
    kJsonSchema,     // text: a JSON schema
    kRegex,          // text: a regular expression that the whole answer matches
    kChoice,         // choices: one of them, verbatim
    kEbnf,           // text: a grammar in GBNF's notation; the answer is its rule `root`
    kStructuralTag,  // text: a structural tag of xgrammar, JSON
  };

  Kind kind = Kind::kJsonObject;
  std::string text;
  std::vector<std::string> choices;
  // JSON kinds and the schemas of a structural tag: white space wherever JSON has it; otherwise one blank
  // after `,` and `:`, and none elsewhere.
  bool any_whitespace = true;
  // Schemas: objects that name properties have no others, and arrays that name their first items no more,
  // unless the schema says so with `additionalProperties`, `items` and the like. Otherwise they may have,
  // which takes longer to compile.
  bool strict = true;

  bool operator==(const GrammarSpec&) const = default;
};

// Equal for specs that are equal in what counts for their kind, and for no others.
std::string CanonicalKey(const GrammarSpec& spec);

// As error messages name it: "JSON schema", "regular expression", ...
std::string_view KindName(GrammarSpec::Kind kind);

// The bytes that the spec is made of.
size_t SpecBytes(const GrammarSpec& spec);

}  // namespace tandem
