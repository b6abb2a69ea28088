// Structural tags whose schemas and regular expressions are ours.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/json_schema_grammar.h"

namespace tandem {

// The structural tag with grammars in place of its JSON schemas and regular expressions, so that they are
// held to, and refused, as those that stand alone (GrammarOfJsonSchema, ParseRegex). Errors begin with the
// pointer of the part. What else is wrong with the tag is xgrammar's to say.
Result<std::string> StructuralTagText(std::string_view tag, const JsonStyle& style);

}  // namespace tandem
