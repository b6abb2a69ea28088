// UTF-8 text as Python's str sees it: a sequence of code points. Invalid bytes count as one code point each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"

namespace tandem::jinja {

// The code point at offset, which moves behind it. A byte that starts no valid sequence gives 0xDC00 + byte
// (a lone surrogate, which EncodeUtf8 turns back into the byte).
char32_t NextCodePoint(std::string_view text, size_t& offset);
void EncodeUtf8(char32_t code_point, std::string& out);
std::u32string DecodeUtf8(std::string_view text);
std::string EncodeUtf8(std::u32string_view text);

bool IsAscii(std::string_view text);
int64_t CodePointCount(std::string_view text);

// alignment, if not null, gets which characters became which.
std::string ToUpper(std::string_view text, Alignment* alignment = nullptr);
std::string ToLower(std::string_view text, Alignment* alignment = nullptr);
std::string ToCasefolded(std::string_view text, Alignment* alignment = nullptr);   // str.casefold
std::string ToTitle(std::string_view text, Alignment* alignment = nullptr);        // str.title
std::string ToCapitalized(std::string_view text, Alignment* alignment = nullptr);  // str.capitalize
std::string SwapCase(std::string_view text, Alignment* alignment = nullptr);

// chars: the set to strip; null strips white space.
std::string_view StripLeft(std::string_view text, const std::string_view* chars = nullptr);
std::string_view StripRight(std::string_view text, const std::string_view* chars = nullptr);

// str.splitlines: also splits at \v, \f, U+001C..U+001E, U+0085, U+2028 and U+2029.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);

}  // namespace tandem::jinja
