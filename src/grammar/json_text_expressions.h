// What JSON's own parts look like, as expressions: strings with what they have to say, numbers between
// bounds.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "grammar/expression.h"

namespace tandem {

// The characters that a JSON string has unescaped.
const CharSet& PlainStringChars();

// `"text"`, with the escapes that it needs. text: UTF-8.
std::string QuotedJson(std::string_view text);

// The inside of a JSON string whose value is one of content's texts. Where content allows characters that
// JSON escapes beside others, those others are what remains. content: without rules.
Expression EscapedForJson(const Expression& content);

// Not of the standard, but of GCC and clang.
__extension__ using Int128 = __int128;

// Inclusive; none: unbounded, and then the number has at most 18 digits. Within +-10^27.
struct IntegerBounds {
  std::optional<Int128> min;
  std::optional<Int128> max;
};
// Integers in JSON without fraction and exponent; a choice of nothing if there are none.
Expression IntegersBetween(const IntegerBounds& bounds);

// A bound of a number.
struct NumberBound {
  double value;
  bool is_exclusive = false;
};
// JSON numbers. With bounds: at most 6 digits after the point and no exponent. Bounds: magnitudes below
// 10^15.
Expression NumbersBetween(std::optional<NumberBound> min, std::optional<NumberBound> max);

}  // namespace tandem
