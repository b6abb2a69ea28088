#include "jinja/unicode.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "jinja/characters.h"

namespace tandem::jinja {
namespace {

// All expected values are those of Python's str.

struct Cases {
  std::string_view text;
  std::string_view upper;
  std::string_view lower;
  std::string_view title;
  std::string_view casefold;
};

TEST(Unicode, CaseOfSeveralCharacters) {
  const Cases cases[] = {
      {"ß", "SS", "ß", "Ss", "ss"},
      {"ẞ", "ẞ", "ß", "ẞ", "ss"},
      {"ŉ", "ʼN", "ŉ", "ʼN", "ʼn"},
      {"ﬃ", "FFI", "ﬃ", "Ffi", "ffi"},
      {"ﬅ", "ST", "ﬅ", "St", "st"},
      {"և", "ԵՒ", "և", "Եւ", "եւ"},
      {"İ", "İ", "i\u0307", "İ", "i\u0307"},
      {"ΐ", "\u0399\u0308\u0301", "ΐ", "\u0399\u0308\u0301", "\u03B9\u0308\u0301"},
      // An iota below its vowel is a letter of its own in upper case, and stays below in title case.
      {"ᾳ", "ΑΙ", "ᾳ", "ᾼ", "αι"},
      {"ᾼ", "ΑΙ", "ᾳ", "ᾼ", "αι"},
      {"\u1FB2", "\u1FBA\u0399", "\u1FB2", "\u1FBA\u0345", "\u1F70\u03B9"},
      {"\u1FB7", "\u0391\u0342\u0399", "\u1FB7", "\u0391\u0342\u0345", "\u03B1\u0342\u03B9"},
  };
  for (const Cases& c : cases) {
    EXPECT_EQ(ToUpper(c.text), c.upper);
    EXPECT_EQ(ToLower(c.text), c.lower);
    EXPECT_EQ(ToTitle(c.text), c.title);
    EXPECT_EQ(ToCasefolded(c.text), c.casefold);
  }
}

TEST(Unicode, CaseOfOneCharacter) {
  const Cases cases[] = {
      {"ǆ", "Ǆ", "ǆ", "ǅ", "ǆ"},   {"ǅ", "Ǆ", "ǆ", "ǅ", "ǆ"},
      {"ა", "Ა", "ა", "ა", "ა"},  // Georgian has no title case
      {"ı", "I", "ı", "I", "ı"},   {"ſ", "S", "ſ", "S", "s"},
      {"ⅷ", "Ⅷ", "ⅷ", "Ⅷ", "ⅷ"},   {"𐐨", "𐐀", "𐐨", "𐐀", "𐐨"},
      {"ª", "ª", "ª", "ª", "ª"},   {"中", "中", "中", "中", "中"},
  };
  for (const Cases& c : cases) {
    EXPECT_EQ(ToUpper(c.text), c.upper);
    EXPECT_EQ(ToLower(c.text), c.lower);
    EXPECT_EQ(ToTitle(c.text), c.title);
    EXPECT_EQ(ToCasefolded(c.text), c.casefold);
  }
}

TEST(Unicode, WordsAndSigma) {
  EXPECT_EQ(ToLower("ΌΣΟΣ ΣΑΣ. Σ"), "όσος σας. σ");
  EXPECT_EQ(ToLower("ΑΣ\u0301 ΑΣ\u0301Β Α\u0301Σ"), "ας\u0301 ασ\u0301β α\u0301ς");
  EXPECT_EQ(ToLower("ΑΣ·Β ΑΣ-Β"), "ασ·β ας-β");
  EXPECT_EQ(ToTitle("straße ǆ they're ΌΣΟΣ"), "Straße ǅ They'Re Όσος");
  EXPECT_EQ(ToCapitalized("ﬁN ΌΣ"), "Fin ός");
  EXPECT_EQ(SwapCase("aßΣ ǅ ᾼ 1"), "ASSς ǅ ᾼ 1");
}

TEST(Unicode, InvalidBytesStay) {
  const std::string text = "a\xff\xc3 \xed\xa0\x80ä\xf0\x9f";
  EXPECT_EQ(EncodeUtf8(DecodeUtf8(text)), text);
  EXPECT_EQ(CodePointCount(text), 10);
  EXPECT_EQ(ToUpper(text), "A\xff\xc3 \xed\xa0\x80Ä\xf0\x9f");
}

TEST(Characters, CaseClasses) {
  for (const char32_t c : U"aßªʰⅷⓐ𝐚") EXPECT_TRUE(c == 0 || (IsLower(c) && IsCased(c) && !IsUpper(c)));
  for (const char32_t c : U"AẞⅧⒶ𝐀🄰") EXPECT_TRUE(c == 0 || (IsUpper(c) && IsCased(c) && !IsLower(c)));
  for (const char32_t c : U"ǅᾼ") EXPECT_TRUE(c == 0 || (IsCased(c) && !IsLower(c) && !IsUpper(c)));
  for (const char32_t c : U"1中ʼ_") EXPECT_FALSE(IsCased(c));
}

TEST(Characters, Numbers) {
  struct Number {
    char32_t c;
    bool decimal;
    bool digit;
    bool numeric;
  };
  for (const Number& n :
       {Number{U'7', true, true, true}, Number{U'٣', true, true, true}, Number{U'²', false, true, true},
        Number{U'①', false, true, true}, Number{U'⒈', false, true, true}, Number{U'½', false, false, true},
        Number{U'Ⅷ', false, false, true}, Number{U'⑩', false, false, true}, Number{U'三', false, false, true},
        Number{U'萬', false, false, true}, Number{U'\U0002F890', false, false, true},
        Number{U'中', false, false, false}, Number{U'a', false, false, false}}) {
    EXPECT_EQ(IsDecimal(n.c), n.decimal) << static_cast<uint32_t>(n.c);
    EXPECT_EQ(IsDigit(n.c), n.digit) << static_cast<uint32_t>(n.c);
    EXPECT_EQ(IsNumeric(n.c), n.numeric) << static_cast<uint32_t>(n.c);
  }
}

TEST(Characters, OtherClasses) {
  for (const char32_t c : {U'\t', U'\x1c', U' ', U'\x85', U'\xa0', U'\u3000'}) EXPECT_TRUE(IsSpace(c));
  for (const char32_t c : {U'\u200b', U'a', U'\0', U'\ufeff'}) EXPECT_FALSE(IsSpace(c));
  for (const char32_t c : {U' ', U'a', U'\u0301', U'€', U'😀', U'中'}) EXPECT_TRUE(IsPrintable(c));
  for (const char32_t c : {U'\n', U'\xa0', U'\xad', U'\u2028', U'\ue000', U'\U000E0FFF', char32_t{0xdc80}}) {
    EXPECT_FALSE(IsPrintable(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'_', U'a', U'²', U'中', U'ª', U'ﬁ'}) EXPECT_TRUE(IsWordCharacter(c));
  for (const char32_t c : {U'\u0301', U'-', U'€', U'\u0903'}) EXPECT_FALSE(IsWordCharacter(c));
}

}  // namespace
}  // namespace tandem::jinja
