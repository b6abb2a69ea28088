// Hugging Face's answers, stored by tests/fixtures/text/make_text_fixtures.py, against ours: every record of
// the corpus encoded and decoded, and random ids decoded.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/sanitizers.h"
#include "text/incremental_detokenizer.h"
#include "text/text_fixtures_testing.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

constexpr int kMaxReported = 5;

// A build with sanitizers looks for memory errors and is slow: a part of the records will do.
constexpr size_t kRecordStride = kSanitized ? 5 : 1;

// FNV-1a of 64 bits, folded to 32.
uint32_t Fold(uint64_t value) {
  return static_cast<uint32_t>(value ^ value >> 32);
}
uint64_t HashByte(uint64_t value, uint8_t byte) {
  return (value ^ byte) * 0x100000001B3ULL;
}
constexpr uint64_t kHashStart = 0xCBF29CE484222325ULL;

uint32_t HashText(std::string_view text) {
  uint64_t value = kHashStart;
  for (const char c : text) value = HashByte(value, static_cast<uint8_t>(c));
  return Fold(value);
}

uint32_t HashIds(const std::vector<int32_t>& ids) {
  uint64_t value = kHashStart;
  for (const int32_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      value = HashByte(value, static_cast<uint8_t>(static_cast<uint32_t>(id) >> shift));
  return Fold(value);
}

const std::vector<std::string>& Corpus() {
  static const std::vector<std::string> records = [] {
    std::vector<std::string> result;
    std::ifstream file(kTextFixtures + "corpus.txt", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    size_t pos = 0;
    while (pos < bytes.size()) {
      const size_t line_end = bytes.find('\n', pos);
      const size_t length = std::stoul(bytes.substr(pos, line_end - pos));
      result.push_back(bytes.substr(line_end + 1, length));
      pos = line_end + 1 + length + 1;
    }
    return result;
  }();
  return records;
}

struct RecordExpectation {
  size_t num_tokens = 0;
  uint32_t with_special = 0;
  uint32_t without_special = 0;
  uint32_t not_parsed = 0;
  uint32_t decoded_skipping = 0;
  uint32_t decoded = 0;
  std::vector<int32_t> ids;  // of a few records
};

struct Expectations {
  std::string source;
  std::string config;
  int64_t vocab_size = 0;
  std::vector<RecordExpectation> records;
  std::vector<std::pair<uint32_t, uint32_t>> random;  // decoded skipping special tokens, and not
};

Expectations ReadExpectations(const std::string& path) {
  Expectations result;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "source") {
      words >> result.source;
    } else if (kind == "config") {
      words >> result.config;
    } else if (kind == "vocab_size") {
      words >> result.vocab_size;
    } else if (kind == "record") {
      RecordExpectation record;
      words >> std::dec >> record.num_tokens >> std::hex >> record.with_special >> record.without_special >>
          record.not_parsed >> record.decoded_skipping >> record.decoded;
      result.records.push_back(record);
    } else if (kind == "ids") {
      int32_t id = 0;
      while (words >> id) result.records.back().ids.push_back(id);
    } else if (kind == "random") {
      std::pair<uint32_t, uint32_t> hashes;
      words >> std::hex >> hashes.first >> hashes.second;
      result.random.push_back(hashes);
    }
  }
  return result;
}

std::string Join(const std::vector<int32_t>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size() && i < 200; ++i) text += fmt::format("{} ", ids[i]);
  return text;
}

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 400)) {
    if (c >= 0x20 && c < 0x7F) {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return out;
}

Result<std::unique_ptr<Tokenizer>> Load(const Expectations& expected) {
  const auto resolve = [](const std::string& name) {
    return name.empty() || name == "-" ? std::string() : name[0] == '/' ? name : kTextFixtures + name;
  };
  const std::string source = resolve(expected.source);
  if (source.ends_with(".gguf")) return Tokenizer::FromGguf(source);
  if (source.ends_with(".model")) return Tokenizer::FromSentencePiece(source, resolve(expected.config));
  return Tokenizer::FromTokenizerJson(source, resolve(expected.config));
}

// The text of ids fed one by one.
std::string DecodeIncrementally(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  IncrementalDetokenizer detokenizer(&tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

void Compare(const Tokenizer& tokenizer, const Expectations& expected) {
  const std::vector<std::string>& records = Corpus();
  ASSERT_GT(records.size(), 300U);
  ASSERT_EQ(records.size(), expected.records.size());
  EXPECT_EQ(tokenizer.vocab_size(), expected.vocab_size);
  int num_wrong = 0;
  for (size_t i = 0; i < records.size() && num_wrong < kMaxReported; i += kRecordStride) {
    const RecordExpectation& record = expected.records[i];
    const std::vector<int32_t> ids = tokenizer.Encode(records[i], true);
    const std::vector<int32_t> bare = tokenizer.Encode(records[i], false);
    const std::vector<int32_t> plain = tokenizer.Encode(records[i], false, false);
    std::string what;
    if (ids.size() != record.num_tokens || HashIds(ids) != record.with_special) what += " encode";
    if (HashIds(bare) != record.without_special) what += " encode-without-special";
    if (HashIds(plain) != record.not_parsed) what += " encode-special-as-text";
    if (!record.ids.empty() && ids != record.ids) what += " ids";
    if (HashText(tokenizer.Decode(ids, true)) != record.decoded_skipping) what += " decode-skipping";
    if (HashText(tokenizer.Decode(ids, false)) != record.decoded) what += " decode";
    if (DecodeIncrementally(tokenizer, ids, true) != tokenizer.Decode(ids, true)) what += " incremental";
    if (what.empty()) continue;
    ++num_wrong;
    ADD_FAILURE() << "record " << i << ":" << what << "\n  text: " << Printable(records[i]) << "\n  got "
                  << ids.size() << " tokens, expected " << record.num_tokens << "\n  ids: " << Join(ids)
                  << "\n  expected: " << Join(record.ids);
  }

  uint64_t state = 12345;
  for (size_t i = 0; i < expected.random.size() && num_wrong < kMaxReported; ++i) {
    std::vector<int32_t> ids;
    for (size_t n = 0; n < 1 + i % 40; ++n) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      // Two ids past the end of the vocabulary are among them.
      ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(expected.vocab_size + 2)));
    }
    std::string what;
    if (HashText(tokenizer.Decode(ids, true)) != expected.random[i].first) what += " decode-skipping";
    if (HashText(tokenizer.Decode(ids, false)) != expected.random[i].second) what += " decode";
    if (DecodeIncrementally(tokenizer, ids, false) != tokenizer.Decode(ids, false)) what += " incremental";
    if (what.empty()) continue;
    ++num_wrong;
    ADD_FAILURE() << "random ids " << i << ":" << what << "\n  ids: " << Join(ids)
                  << "\n  text: " << Printable(tokenizer.Decode(ids, false));
  }
}

class TokenizerFixture : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFixture, EqualsHuggingFace) {
  const Expectations expected = ReadExpectations(kTextFixtures + GetParam() + ".expected");
  ASSERT_FALSE(expected.records.empty());
  const auto tokenizer = Load(expected);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Compare(**tokenizer, expected);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerFixture,
                         testing::Values("llama3", "qwen2", "qwen3", "smollm2", "gpt2_odd", "tekken",
                                         "llama2", "metaspace", "spm", "spm_legacy", "spm_no_prefix",
                                         "gguf_llama3", "gguf_qwen2", "gguf_spm"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TokenizerRealVocabulary, SmolLm2EqualsHuggingFace) {
  const char* configured = std::getenv("TANDEM_TEST_MODEL");
  Expectations expected = ReadExpectations(kTextFixtures + "smollm2_gguf.expected");
  ASSERT_FALSE(expected.records.empty());
  expected.source = configured != nullptr
                        ? configured
                        : std::string(TANDEM_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(expected.source)) GTEST_SKIP() << expected.source << " is not there";
  const auto tokenizer = Load(expected);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Compare(**tokenizer, expected);
  EXPECT_EQ((*tokenizer)->eos_token(), "<|im_end|>");
}

// TANDEM_TEST_TOKENIZERS: a folder that make_text_fixtures.py --real filled.
TEST(TokenizerRealVocabulary, OthersEqualHuggingFace) {
  const char* folder = std::getenv("TANDEM_TEST_TOKENIZERS");
  if (folder == nullptr) GTEST_SKIP() << "TANDEM_TEST_TOKENIZERS is not set";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".expected") continue;
    SCOPED_TRACE(entry.path().string());
    const Expectations expected = ReadExpectations(entry.path());
    const auto tokenizer = Load(expected);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    Compare(**tokenizer, expected);
  }
}

}  // namespace
}  // namespace tandem
