// What one character is and how its case changes, as Python's str has it: the classes are those of isalpha,
// isdigit, ... Categories and mappings are utf8proc's, whose version of Unicode may be newer or older than a
// Python's.
#pragma once

#include <string>

namespace tandem::jinja {

bool IsSpace(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);  // upper, lower or title case
bool IsAlphabetic(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);          // decimal digits, and those in circles, superscripts, ...
bool IsNumeric(char32_t c);        // digits, and fractions, Roman numerals, ideographs of numbers, ...
bool IsWordCharacter(char32_t c);  // what \w of a Python regular expression matches: isalnum or _
bool IsAlphanumeric(char32_t c);
bool IsPrintable(char32_t c);
// Unicode's Case_Ignorable: what does not end a word for the final sigma.
bool IsCaseIgnorable(char32_t c);

// One to three characters. Without the characters around it: a capital sigma becomes the medial form.
std::u32string Uppercased(char32_t c);
std::u32string Titlecased(char32_t c);
std::u32string Lowercased(char32_t c);
std::u32string Casefolded(char32_t c);

}  // namespace tandem::jinja
