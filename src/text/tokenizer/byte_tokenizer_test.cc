#include "text/tokenizer/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

std::unique_ptr<Tokenizer> MustMake(int64_t vocab_size) {
  auto tokenizer = MakeByteTokenizer(vocab_size);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

TEST(ByteTokenizer, EncodesEveryTextAsItsBytes) {
  const auto tokenizer = MustMake(1000);
  const std::string text = "a <999> \xc3\xa9\n\n<|end|>\t\xf0\x9f\x98\x80";
  const std::vector<int32_t> ids = tokenizer->Encode(text, true);
  std::vector<int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(ids, bytes);
  EXPECT_EQ(tokenizer->Decode(ids, true), text);
  EXPECT_TRUE(tokenizer->Encode("", true).empty());
}

TEST(ByteTokenizer, ShowsOtherIdsAsNumbers) {
  const auto tokenizer = MustMake(128256);
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{72, 256, 105, 128255}, true), "H<256>i<128255>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{128256}, true), "");
  // Half a character, then a token of another kind.
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0xc3, 300}, true), "\xef\xbf\xbd<300>");
  EXPECT_EQ(tokenizer->TokenBytes(10), "\n");
}

TEST(ByteTokenizer, HasNoSpecialTokens) {
  const auto tokenizer = MustMake(256);
  for (int32_t id = 0; id < 256; ++id) EXPECT_FALSE(tokenizer->IsSpecial(id));
  EXPECT_FALSE(tokenizer->bos_token_id().has_value());
  EXPECT_FALSE(tokenizer->eos_token_id().has_value());
  EXPECT_EQ(tokenizer->eos_token(), "");
}

TEST(ByteTokenizer, RefusesVocabulariesThatCannotBe) {
  for (const int64_t vocab_size : {int64_t{-1}, int64_t{0}, int64_t{255}, int64_t{1} << 40}) {
    const auto tokenizer = MakeByteTokenizer(vocab_size);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem
