// Grammars that requests bring.
#pragma once

#include <string_view>

#include "base/result.h"

namespace tandem {

// What xgrammar's parser does not refuse, and would not end with or not hold answers to: repetitions that are
// written out too often, brackets nested too deep, calls (`Regex(...)` and the like), attributes of rules.
// Errors name the line and column, both from 1.
Status CheckEbnf(std::string_view grammar);

}  // namespace tandem
