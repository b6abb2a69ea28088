#include "jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.h"
#include "base/white_space.h"

namespace tandem::jinja {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// utf8proc has general categories and case mappings. The properties below are not in its tables: each lists
// what is not seen by the category. Sorted by code point.

// Other_Lowercase.
constexpr CodePointRange kOtherLowercase[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x1E030, 0x1E06D}};

// Other_Uppercase.
constexpr CodePointRange kOtherUppercase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

// Numeric_Type=Digit.
constexpr CodePointRange kOtherDigits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Ideographs with a Numeric_Value.
constexpr std::u32string_view kNumericIdeographs =
    U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4E96\u4EBF\u4EC0\u4EDF\u4EE8\u4F0D"
    U"\u4F70\u5104\u5146\u5169\u516B\u516D\u5341\u5343\u5344\u5345\u534C\u53C1\u53C2\u53C3\u53C4\u56DB\u58F1"
    U"\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10\u62FE\u634C\u67D2\u6F06\u7396\u767E\u8086\u842C\u8CAE"
    U"\u8CB3\u8D30\u9621\u9646\u964C\u9678\u96F6\uF96B\uF973\uF978\uF9B2\uF9D1\uF9D3\uF9FD\U00020001"
    U"\U00020064"
    U"\U000200E2\U00020121\U0002092A\U00020983\U0002098C\U0002099C\U00020AEA\U00020AFD\U00020B19\U00022390"
    U"\U00022998\U00023B1B\U0002626D\U0002F890";

// The punctuation that may stand inside a word (Word_Break=MidLetter, MidNumLet, Single_Quote).
constexpr std::u32string_view kWordPunctuation =
    U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";

bool InRanges(const auto& ranges, char32_t c) {
  const CodePointRange* const behind =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return behind != std::begin(ranges) && c <= (behind - 1)->last;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t SimpleUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t SimpleTitle(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}
char32_t SimpleLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// utf8proc has no upper and title case of several characters (SpecialCasing.txt), but its full case folding
// says which letters such a character consists of. Those of capital letters fold without having another upper
// case.
bool HasSeveralCapitals(char32_t c, const std::u32string& folded) {
  return folded.size() > 1 && Category(c) != UTF8PROC_CATEGORY_LU;
}

}  // namespace

bool IsSpace(char32_t c) {
  return IsWhiteSpace(c) || (c >= 0x1c && c <= 0x1f);
}

bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || InRanges(kOtherUppercase, c);
}

bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || InRanges(kOtherLowercase, c);
}

bool IsCased(char32_t c) {
  return IsLower(c) || IsUpper(c) || Category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(char32_t c) {
  return IsDecimal(c) || InRanges(kOtherDigits, c);
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         std::binary_search(kNumericIdeographs.begin(), kNumericIdeographs.end(), c);
}

bool IsAlphanumeric(char32_t c) {
  return IsAlphabetic(c) || IsNumeric(c);
}

bool IsWordCharacter(char32_t c) {
  return c == '_' || IsAlphanumeric(c);
}

bool IsPrintable(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return c == ' ' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO);
}

bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kWordPunctuation.find(c) != std::u32string_view::npos;
  }
}

std::u32string Casefolded(char32_t c) {
  utf8proc_int32_t folded[4];
  const utf8proc_ssize_t length = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded,
                                                          std::size(folded), UTF8PROC_CASEFOLD, nullptr);
  TANDEM_CHECK(length <= static_cast<utf8proc_ssize_t>(std::size(folded)), "U+{:X} folds to {} characters",
               static_cast<uint32_t>(c), length);
  return length < 0 ? std::u32string(1, c) : std::u32string(folded, folded + length);
}

std::u32string Uppercased(char32_t c) {
  std::u32string folded = Casefolded(c);
  if (!HasSeveralCapitals(c, folded)) return std::u32string(1, SimpleUpper(c));
  std::transform(folded.begin(), folded.end(), folded.begin(), SimpleUpper);
  return folded;
}

std::u32string Titlecased(char32_t c) {
  const char32_t title = SimpleTitle(c);
  std::u32string folded = Casefolded(c);
  if (Category(title) == UTF8PROC_CATEGORY_LT || !HasSeveralCapitals(c, folded))
    return std::u32string(1, title);
  // The first letter that has a title case gets it; behind it, an iota goes back below its vowel.
  const auto letter =
      std::find_if(folded.begin(), folded.end(), [](char32_t part) { return SimpleTitle(part) != part; });
  if (letter == folded.end()) return folded;
  *letter = SimpleTitle(*letter);
  std::replace(letter + 1, folded.end(), U'\u03B9', U'\u0345');
  return folded;
}

std::u32string Lowercased(char32_t c) {
  constexpr char32_t kCapitalIWithDot = U'\u0130';  // the only one whose lower case is several characters
  return c == kCapitalIWithDot ? U"i\u0307" : std::u32string(1, SimpleLower(c));
}

}  // namespace tandem::jinja
