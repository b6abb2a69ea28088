// Case mappings and character classes of the Unicode database, as Python's str uses them. Sorted by code
// point.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::jinja {

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

// Every stride-th code point of [first, last] maps to itself + delta.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};

// A code point with a mapping of several code points; unused places are 0.
struct SpecialCase {
  uint32_t code_point;
  uint32_t upper[3];
  uint32_t lower[3];
  uint32_t title[3];
};

extern const CaseRange kToUpper[];
extern const size_t kToUpperSize;
extern const CaseRange kToLower[];
extern const size_t kToLowerSize;
extern const CaseRange kToTitle[];  // only where it differs from the upper case
extern const size_t kToTitleSize;
extern const SpecialCase kSpecialCases[];
extern const size_t kSpecialCasesSize;
extern const CodePointRange kCased[];
extern const size_t kCasedSize;
extern const CodePointRange kAlphabetic[];
extern const size_t kAlphabeticSize;
extern const CodePointRange kNumeric[];
extern const size_t kNumericSize;
extern const CodePointRange kDigit[];
extern const size_t kDigitSize;
extern const CodePointRange kUnprintable[];
extern const size_t kUnprintableSize;

}  // namespace tandem::jinja
