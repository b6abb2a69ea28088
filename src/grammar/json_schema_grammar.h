// From a JSON schema to a grammar of texts that obey it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

struct JsonStyle {
  // White space wherever JSON has it; otherwise one blank after `,` and `:`.
  bool any_whitespace = true;
  // Objects that name properties have no others unless the schema says so.
  bool strict = false;
};

// A grammar (ExpressionGrammar::Print) every text of which is JSON that obeys the schema: drafts 4 to
// 2020-12. Not every JSON text that obeys it is one of the grammar: properties come in the order of the
// schema, strings match a `pattern` as a whole, numbers have at most 18 digits. Keywords that the grammar
// would not hold answers to are errors (kUnsupported), which begin with the pointer of the keyword; so are
// schemas that no value obeys.
Result<std::string> GrammarOfJsonSchema(std::string_view schema, const JsonStyle& style);

// Of any JSON object.
std::string GrammarOfJsonObjects(const JsonStyle& style);

}  // namespace tandem
