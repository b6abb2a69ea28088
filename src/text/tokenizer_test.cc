#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/text_fixtures_testing.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A file that lives as long as the object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, std::string_view bytes)
      : path_(testing::TempDir() + "tandem_text_" + std::to_string(::getpid()) + "_" + name) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::unique_ptr<Tokenizer>> LoadJson(const json& spec) {
  const TemporaryFile file("tokenizer.json", spec.dump());
  return Tokenizer::FromTokenizerJson(file.path(), "");
}

json Llama2() {
  return json::parse(ReadBytes(kTextFixtures + "llama2.tokenizer.json"));
}
json Qwen2() {
  return json::parse(ReadBytes(kTextFixtures + "qwen2.tokenizer.json"));
}

std::unique_ptr<Tokenizer> MustLoad(Result<std::unique_ptr<Tokenizer>> tokenizer) {
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  const auto tokenizer = MustLoad(Tokenizer::FromSentencePiece(kTextFixtures + "llama2.tokenizer.model",
                                                               kTextFixtures + "spm.tokenizer_config.json"));
  EXPECT_EQ(tokenizer->bos_token_id(), 1);
  EXPECT_EQ(tokenizer->eos_token_id(), 2);
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  EXPECT_TRUE(tokenizer->IsSpecial(1));
  EXPECT_FALSE(tokenizer->IsSpecial(300));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(1 << 30));
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->TokenToId("</s>"), 2);
  EXPECT_EQ(tokenizer->TokenToId("no such token at all"), std::nullopt);
}

TEST(Tokenizer, SentencePieceAddsBosByDefault) {
  const auto tokenizer = MustLoad(Tokenizer::FromSentencePiece(kTextFixtures + "llama2.tokenizer.model", ""));
  const std::vector<int32_t> ids = tokenizer->Encode("hello", true);
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(ids[0], 1);
}

TEST(Tokenizer, TokenBytesAreTheRawBytes) {
  const auto spm = MustLoad(Tokenizer::FromSentencePiece(kTextFixtures + "llama2.tokenizer.model", ""));
  EXPECT_EQ(spm->TokenBytes(*spm->TokenToId("<0xE2>")), "\xE2");
  EXPECT_EQ(spm->TokenBytes(*spm->TokenToId("\xE2\x96\x81")), " ");
  EXPECT_EQ(spm->TokenBytes(1), "<s>");
  EXPECT_EQ(spm->TokenBytes(-1), "");
  const auto qwen = MustLoad(Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", ""));
  EXPECT_EQ(qwen->TokenBytes(*qwen->TokenToId("\xC4\xA0the")), " the");
  EXPECT_EQ(qwen->TokenBytes(*qwen->TokenToId("<|im_end|>")), "<|im_end|>");
  EXPECT_EQ(qwen->TokenBytes(1 << 30), "");
}

TEST(Tokenizer, ConfigAddsTokensAndBos) {
  const TemporaryFile config(
      "config.json", json{{"bos_token", "<|im_start|>"},
                          {"eos_token", {{"content", "<|im_end|>"}}},
                          {"add_bos_token", true},
                          {"added_tokens_decoder", {{"5000", {{"content", "<extra>"}, {"special", true}}}}}}
                         .dump());
  const auto tokenizer =
      MustLoad(Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", config.path()));
  EXPECT_EQ(tokenizer->bos_token(), "<|im_start|>");
  EXPECT_EQ(tokenizer->eos_token(), "<|im_end|>");
  EXPECT_EQ(tokenizer->vocab_size(), 5001);
  EXPECT_EQ(tokenizer->Encode("<extra>", true),
            (std::vector<int32_t>{*tokenizer->TokenToId("<|im_start|>"), 5000}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{5000, 4999}, false), "<extra>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{5000, 4999}, true), "");
}

TEST(Tokenizer, LongTextsWithoutBordersAreFast) {
  // Quadratic merging would take a minute.
  const auto spm = MustLoad(Tokenizer::FromSentencePiece(kTextFixtures + "llama2.tokenizer.model", ""));
  const auto qwen = MustLoad(Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", ""));
  for (const std::string& unit :
       {std::string("a"), std::string(" "), std::string("ab"), std::string("\xE5\xAD\x97")}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_TRUE(qwen->Decode(qwen->Encode(text, false), false) == text) << unit;
    // Leading spaces take the place of the space that Decode strips.
    EXPECT_TRUE(spm->Decode(spm->Encode("x" + text, false), false) == "x" + text) << unit;
  }
}

TEST(Tokenizer, EncodesTheSameInManyThreads) {
  const auto tokenizer = MustLoad(Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", ""));
  const std::string text = ReadBytes(kTextFixtures + "corpus.txt").substr(0, 50'000);
  const std::vector<int32_t> expected = tokenizer->Encode(text, true);
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::vector<int> num_equal(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) num_equal[t] += tokenizer->Encode(text, true) == expected ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_equal, std::vector<int>(4, 5));
}

// --- Malformed files.

struct Change {
  const char* pointer;  // JSON pointer
  json value;           // discarded: remove
  ErrorCode code;
};

class MalformedTokenizerJson : public testing::TestWithParam<Change> {};

TEST_P(MalformedTokenizerJson, IsAnError) {
  const Change& change = GetParam();
  for (json spec : {Llama2(), Qwen2()}) {
    const json::json_pointer pointer(change.pointer);
    // Not every kind has every field.
    if (!spec.contains(pointer.parent_pointer())) continue;
    if (change.value.is_discarded()) {
      spec[pointer.parent_pointer()].erase(pointer.back());
    } else {
      spec[pointer] = change.value;
    }
    const auto tokenizer = LoadJson(spec);
    ASSERT_FALSE(tokenizer.ok()) << change.pointer;
    EXPECT_EQ(tokenizer.error().code, change.code) << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos);
  }
}

const json kRemoved = json(json::value_t::discarded);
constexpr ErrorCode kBad = ErrorCode::kMalformedFile;
constexpr ErrorCode kNotOurs = ErrorCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Fields, MalformedTokenizerJson,
    testing::Values(
        Change{"/model", kRemoved, kBad}, Change{"/model", 5, kBad},
        Change{"/model/type", "Unigram", kNotOurs}, Change{"/model/type", 3, kBad},
        Change{"/model/vocab", kRemoved, kBad}, Change{"/model/vocab", json::array(), kBad},
        Change{"/model/vocab/the", "7", kBad}, Change{"/model/vocab/the", -7, kBad},
        Change{"/model/vocab/the", 1.5, kBad}, Change{"/model/vocab/the", 2000000000, kBad},
        Change{"/model/vocab/the", 9000000000000000000ULL, kBad}, Change{"/model/merges", kRemoved, kBad},
        Change{"/model/merges", "x", kBad}, Change{"/model/merges/0", "x", kBad},
        Change{"/model/merges/0", "a b c", kBad}, Change{"/model/merges/0", json::array({"a"}), kBad},
        Change{"/model/merges/0", json::array({"no", "such pair"}), kBad},
        Change{"/model/merges/0", json::array({1, 2}), kBad}, Change{"/model/dropout", 0.1, kNotOurs},
        Change{"/model/continuing_subword_prefix", "##", kNotOurs},
        Change{"/model/byte_fallback", "yes", kBad}, Change{"/model/unk_token", "no such token", kBad},
        Change{"/model/unk_token", 0, kBad}, Change{"/added_tokens", 5, kBad},
        Change{"/added_tokens/0", "x", kBad}, Change{"/added_tokens/0/id", kRemoved, kBad},
        Change{"/added_tokens/0/id", -1, kBad}, Change{"/added_tokens/0/id", "1", kBad},
        Change{"/added_tokens/0/content", kRemoved, kBad}, Change{"/added_tokens/0/content", 1, kBad},
        Change{"/added_tokens/0/special", 1, kBad}, Change{"/normalizer", "NFC", kBad},
        Change{"/normalizer", json{{"type", "Lowercase"}}, kNotOurs},
        Change{"/normalizer", json{{"type", "Replace"}}, kBad},
        Change{"/normalizer", json{{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}},
               kBad},
        Change{"/normalizer", json{{"type", "Sequence"}, {"normalizers", 1}}, kBad},
        Change{"/pre_tokenizer", json{{"type", "BertPreTokenizer"}}, kNotOurs},
        Change{"/pre_tokenizer", 1, kBad}, Change{"/pre_tokenizer", json{{"type", "Split"}}, kBad},
        Change{"/pre_tokenizer",
               json{{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}, kBad},
        Change{"/pre_tokenizer",
               json{{"type", "Split"}, {"pattern", {{"Regex", "\\h"}}}, {"behavior", "Isolated"}}, kNotOurs},
        Change{"/pre_tokenizer", json{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Odd"}},
               kBad},
        Change{"/pre_tokenizer", json{{"type", "Metaspace"}, {"replacement", ""}}, kBad},
        Change{"/decoder", json{{"type", "WordPiece"}}, kNotOurs}, Change{"/decoder", json::array(), kBad},
        Change{"/decoder", json{{"type", "Sequence"}, {"decoders", {{{"type", "Strip"}}}}}, kNotOurs},
        Change{"/post_processor", json{{"type", "BertProcessing"}}, kNotOurs},
        Change{"/post_processor", 7, kBad},
        Change{"/post_processor", json{{"type", "TemplateProcessing"}, {"single", json::array()}}, kBad},
        Change{"/post_processor",
               json{{"type", "TemplateProcessing"},
                    {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                    {"special_tokens", {{"<s>", {{"ids", {99999999}}}}}}},
               kBad}));

TEST(TokenizerJson, DeepNestingIsAnError) {
  json spec = Qwen2();
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 1000; ++i) nested = json{{"type", "Sequence"}, {"normalizers", {nested}}};
  spec["normalizer"] = nested;
  EXPECT_FALSE(LoadJson(spec).ok());
}

TEST(TokenizerJson, TruncatedAnywhereIsAnError) {
  const std::string bytes = ReadBytes(kTextFixtures + "llama2.tokenizer.json");
  ASSERT_GT(bytes.size(), 10'000U);
  for (size_t length = 0; length < bytes.size(); length += length < 600 ? 7 : 997) {
    const TemporaryFile file("truncated.json", std::string_view(bytes).substr(0, length));
    const auto tokenizer = Tokenizer::FromTokenizerJson(file.path(), "");
    ASSERT_FALSE(tokenizer.ok()) << length;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kMalformedFile);
  }
}

TEST(TokenizerJson, MissingFilesAreErrors) {
  EXPECT_EQ(Tokenizer::FromTokenizerJson("/no/such/file", "").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(
      Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", "/no/such/file").error().code,
      ErrorCode::kNotFound);
  EXPECT_EQ(Tokenizer::FromTokenizerJson(kTextFixtures, "").error().code, ErrorCode::kIo);
  EXPECT_EQ(Tokenizer::FromSentencePiece("/no/such/file", "").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Tokenizer::FromGguf("/no/such/file").error().code, ErrorCode::kNotFound);
}

TEST(TokenizerConfigFile, WrongTypesAreErrors) {
  const std::vector<json> configs = {json::array(),
                                     {{"bos_token", 1}},
                                     {{"bos_token", {{"special", true}}}},
                                     {{"add_bos_token", "yes"}},
                                     {{"legacy", 1}},
                                     {{"added_tokens_decoder", 5}},
                                     {{"added_tokens_decoder", {{"x", {{"content", "y"}}}}}},
                                     {{"added_tokens_decoder", {{"-1", {{"content", "y"}}}}}},
                                     {{"added_tokens_decoder", {{"1", 5}}}},
                                     {{"added_tokens_decoder", {{"2000000000", {{"content", "<far>"}}}}}},
                                     {{"additional_special_tokens", "x"}},
                                     {{"additional_special_tokens", {1}}}};
  for (const json& config : configs) {
    const TemporaryFile file("config.json", config.dump());
    const auto tokenizer = Tokenizer::FromTokenizerJson(kTextFixtures + "qwen2.tokenizer.json", file.path());
    ASSERT_FALSE(tokenizer.ok()) << config;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kMalformedFile) << config;
  }
}

TEST(SentencePieceFile, DamagedFilesAreErrorsOrLoad) {
  const std::string good = ReadBytes(kTextFixtures + "llama2.tokenizer.model");
  ASSERT_GT(good.size(), 10'000U);
  const auto load = [](std::string_view bytes) {
    const TemporaryFile file("damaged.model", bytes);
    const auto tokenizer = Tokenizer::FromSentencePiece(file.path(), "");
    // Whatever loads must work.
    if (tokenizer.ok()) (void)(*tokenizer)->Encode("hello world \xE2\x82\xAC", true);
    return tokenizer.ok();
  };
  EXPECT_FALSE(load(""));
  EXPECT_FALSE(load("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
  EXPECT_FALSE(load("not a model"));
  std::mt19937 random(1);
  // The trainer spec comes behind the pieces: without it the file is no BPE model.
  for (size_t length = 0; length < 12'000; length += length < 200 ? 1 : 499)
    EXPECT_FALSE(load(std::string_view(good).substr(0, length))) << length;
  int num_loaded = 0;
  for (int i = 0; i < 60; ++i) {
    std::string noise(200, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    EXPECT_FALSE(load(noise));
    std::string damaged = good;
    for (int n = 0; n < 3; ++n) damaged[random() % damaged.size()] = static_cast<char>(random());
    num_loaded += load(damaged) ? 1 : 0;
  }
  EXPECT_LT(num_loaded, 60);
}

TEST(GgufVocabulary, UnknownPreTokenizerIsUnsupported) {
  std::string bytes = ReadBytes(kTextFixtures + "gguf_qwen2.gguf");
  const size_t at = bytes.find("qwen2", bytes.find("tokenizer.ggml.pre"));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 5, "other");
  const TemporaryFile file("other.gguf", bytes);
  const auto tokenizer = Tokenizer::FromGguf(file.path());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(tokenizer.error().message.find("other"), std::string::npos) << tokenizer.error().message;
}

TEST(GgufVocabulary, MissingKeysAreErrors) {
  for (const char* name : {"gguf_qwen2.gguf", "gguf_spm.gguf"}) {
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                            "tokenizer.ggml.scores"}) {
      std::string bytes = ReadBytes(kTextFixtures + name);
      const size_t at = bytes.find(key);
      if (at == std::string::npos) continue;
      bytes[at] = 'T';
      const TemporaryFile file("missing.gguf", bytes);
      const auto tokenizer = Tokenizer::FromGguf(file.path());
      ASSERT_FALSE(tokenizer.ok()) << name << key;
      EXPECT_NE(tokenizer.error().message.find(key), std::string::npos) << tokenizer.error().message;
    }
  }
}

}  // namespace
}  // namespace tandem
