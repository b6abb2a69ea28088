// Structural tags: free text and structured parts in turn, as tool calls are.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/json_schema_grammar.h"

namespace tandem {

// A structural tag for xgrammar that says what the one of a request says, with its JSON schemas and regular
// expressions as grammars of ours. Both forms are read: {"type": "structural_tag", "format": {...}}, and the
// older {"structures": [{"begin", "schema", "end"}], "triggers": [...]}. Errors begin with the pointer of the
// part.
Result<std::string> PrepareStructuralTag(std::string_view tag, const JsonStyle& style);

}  // namespace tandem
