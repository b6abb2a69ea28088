#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

const std::string kR(kReplacementCharacter);

TEST(Utf8, ReplacesMaximalInvalidParts) {
  EXPECT_EQ(ReplaceInvalidUtf8("plain \u00e9 \U0001f600"), "plain \u00e9 \U0001f600");
  EXPECT_EQ(ReplaceInvalidUtf8("\xFF"), kR);
  EXPECT_EQ(ReplaceInvalidUtf8("\x80\x80"), kR + kR);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), kR);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"
                               "a"),
            kR + "a");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98\xF0\x9F\x98\x80"), kR + "\U0001f600");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), kR + kR + kR);  // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), kR + kR);           // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xF5\x80"), kR + kR);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), kR + kR + kR + kR);  // above U+10FFFF
}

TEST(Utf8, KeepsAnIncompleteEnd) {
  std::string text;
  EXPECT_EQ(AppendCompleteUtf8("ab\xF0\x9F\x98", &text), 2U);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(AppendCompleteUtf8("\xE0", &text), 0U);
  EXPECT_EQ(AppendCompleteUtf8("\xE0\x80", &text), 2U);  // can never be completed
  EXPECT_EQ(text, "ab" + kR + kR);
}

TEST(Utf8, DecodesWhatItEncodes) {
  for (const uint32_t c : {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    AppendUtf8(c, &text);
    EXPECT_EQ(DecodeUtf8(text, 0), c);
    EXPECT_EQ(Utf8Length(text[0]), text.size());
    EXPECT_TRUE(IsValidUtf8(text));
  }
}

}  // namespace
}  // namespace tandem
