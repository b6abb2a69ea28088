#include "text/incremental_detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/text_fixtures_testing.h"

namespace tandem {
namespace {

std::unique_ptr<Tokenizer> ByteLevel() {
  auto tokenizer = Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", "");
  EXPECT_TRUE(tokenizer.ok());
  return std::move(tokenizer).value();
}

std::unique_ptr<Tokenizer> SentencePiece() {
  auto tokenizer = Tokenizer::FromSentencePiece(kTextFixtures + "llama2.tokenizer.model", "");
  EXPECT_TRUE(tokenizer.ok());
  return std::move(tokenizer).value();
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const auto id = tokenizer.TokenToId(token);
    EXPECT_TRUE(id.has_value()) << token;
    ids.push_back(id.value_or(0));
  }
  return ids;
}

TEST(IncrementalDetokenizer, HoldsBackAnEmojiUntilItIsComplete) {
  const auto tokenizer = ByteLevel();
  // U+1F600 is F0 9F 98 80, spelled in the byte alphabet.
  const auto ids = Ids(*tokenizer, {"\xC3\xB0", "\xC5\x81", "\xC4\xBA", "\xC4\xA2", "a"});
  IncrementalDetokenizer detokenizer(tokenizer.get(), true);
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Append(ids[2]), "");
  EXPECT_EQ(detokenizer.Append(ids[3]), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Append(ids[4]), "a");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizer, IncompleteCharactersBecomeOneReplacement) {
  const auto tokenizer = ByteLevel();
  const auto ids = Ids(*tokenizer, {"\xC3\xB0", "\xC5\x81", "a", "\xC3\xB0"});
  IncrementalDetokenizer detokenizer(tokenizer.get(), true);
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), "");
  EXPECT_EQ(detokenizer.Append(ids[2]),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(detokenizer.Append(ids[3]), "");
  EXPECT_EQ(detokenizer.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizer, ByteFallbackRunsAreDecidedAtTheirEnd) {
  const auto tokenizer = SentencePiece();
  const auto euro = Ids(*tokenizer, {"<0xE2>", "<0x82>", "<0xAC>", "a"});
  IncrementalDetokenizer good(tokenizer.get(), true);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(good.Append(euro[i]), "");
  EXPECT_EQ(good.Append(euro[3]),
            "\xE2\x82\xAC"
            "a");

  const auto broken = Ids(*tokenizer, {"<0x41>", "<0xE2>", "<0x82>"});
  IncrementalDetokenizer bad(tokenizer.get(), true);
  for (const int32_t id : broken) EXPECT_EQ(bad.Append(id), "");
  // One replacement for each byte, also for the valid one.
  EXPECT_EQ(bad.Flush(), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(IncrementalDetokenizer, StripsOneSpaceAtTheStartOnly) {
  const auto tokenizer = SentencePiece();
  const auto ids = Ids(*tokenizer, {"\xE2\x96\x81", "\xE2\x96\x81", "a", "\xE2\x96\x81"});
  IncrementalDetokenizer detokenizer(tokenizer.get(), true);
  EXPECT_EQ(detokenizer.Append(1), "");  // BOS, skipped
  EXPECT_EQ(detokenizer.Append(ids[0]), "");
  EXPECT_EQ(detokenizer.Append(ids[1]), " ");
  EXPECT_EQ(detokenizer.Append(ids[2]), "a");
  EXPECT_EQ(detokenizer.Append(ids[3]), " ");
}

TEST(IncrementalDetokenizer, SkipsSpecialTokensOnlyOnRequest) {
  const auto tokenizer = ByteLevel();
  const int32_t id = *tokenizer->TokenToId("<|im_end|>");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer.get(), true).Append(id), "");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer.get(), false).Append(id), "<|im_end|>");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer.get(), false).Append(-1), "");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer.get(), false).Append(1 << 29), "");
}

TEST(IncrementalDetokenizer, RandomIdsGiveDecodeAndEveryPartIsUtf8) {
  for (const auto& tokenizer : {ByteLevel(), SentencePiece()}) {
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
      std::vector<int32_t> ids(1 + random() % 60);
      // Half of the rounds draw single bytes, which form and break characters often.
      const auto limit = static_cast<uint32_t>(round % 2 == 0 ? tokenizer->vocab_size() + 2 : 262);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % limit);
      for (const bool skip : {false, true}) {
        IncrementalDetokenizer detokenizer(tokenizer.get(), skip);
        std::string text;
        for (const int32_t id : ids) {
          const std::string part = detokenizer.Append(id);
          ASSERT_TRUE(IsValidUtf8(part));
          text += part;
        }
        text += detokenizer.Flush();
        ASSERT_EQ(text, tokenizer->Decode(ids, skip));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
