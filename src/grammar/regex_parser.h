// Regular expressions as schemas and requests have them (ECMA-262's notation), as expressions of what the
// whole text is.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/expression.h"

namespace tandem {

// pattern: UTF-8. The text is matched from its beginning to its end, with `^` and `$` or without: a text that
// follows is one that the pattern is found in. What has no counterpart in a grammar (assertions, back
// references, flags) is kUnsupported, everything else that is wrong kInvalidArgument, with the byte that it
// begins at. Case counts; `.` is everything but line ends; \d, \w are ASCII; \s is ASCII, and \S has no white
// space of Unicode.
Result<Expression> ParseRegex(std::string_view pattern);

}  // namespace tandem
