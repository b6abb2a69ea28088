// Number and string literals of the template language.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "jinja/lexer.h"

namespace tandem::jinja {

// Reads a number at source[offset] into token and moves offset behind it; false if there is none.
bool ReadNumber(std::string_view source, size_t& offset, Token& token);

// What stands between the quotes, with Python's escapes resolved.
std::string UnescapeString(std::string_view body, int line);

}  // namespace tandem::jinja
