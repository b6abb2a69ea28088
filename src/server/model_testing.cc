#include "server/model_testing.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

std::string Utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// Byte-level BPE writes printable Latin-1 bytes as themselves and the others from U+0100 on.
bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

std::string ByteText(int byte) {
  if (IsPrintable(byte)) return Utf8(byte);
  int rank = 0;
  for (int other = 0; other < byte; ++other) rank += IsPrintable(other) ? 0 : 1;
  return Utf8(0x100 + rank);
}

std::string TokenizerJson() {
  nlohmann::ordered_json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[ByteText(byte)] = byte;
  vocab["<|end|>"] = TestModel::kEndOfText;
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::ordered_json end = {{"id", TestModel::kEndOfText},
                                      {"content", "<|end|>"},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}};
  return nlohmann::ordered_json({{"version", "1.0"},
                                 {"added_tokens", nlohmann::ordered_json::array({end})},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", byte_level},
                                 {"post_processor", nullptr},
                                 {"decoder", byte_level},
                                 {"model",
                                  {{"type", "BPE"},
                                   {"dropout", nullptr},
                                   {"unk_token", nullptr},
                                   {"continuing_subword_prefix", nullptr},
                                   {"end_of_word_suffix", nullptr},
                                   {"fuse_unk", false},
                                   {"vocab", vocab},
                                   {"merges", nlohmann::ordered_json::array()}}}})
      .dump();
}

constexpr const char* kTemplate =
    "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

}  // namespace

TestModel::TestModel() {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tandem_server_test_" + std::to_string(getpid()) + ".json"))
          .string();
  std::ofstream(path) << TokenizerJson();
  auto tokenizer = Tokenizer::FromTokenizerJson(path, "");
  std::filesystem::remove(path);
  TANDEM_CHECK(tokenizer.ok(), "{}", tokenizer.error().message);
  tokenizer_ = std::move(tokenizer).value();
  auto chat_template = ChatTemplate::Parse(kTemplate);
  TANDEM_CHECK(chat_template.ok(), "{}", chat_template.error().message);
  chat_template_ = std::move(chat_template).value();
  context_ = {.served_model_name = "test",
              .model_aliases = {"alias"},
              .tokenizer = tokenizer_.get(),
              .chat_template = chat_template_.get(),
              .defaults = {},
              .max_model_len = kMaxModelLen};
}

int32_t TestModel::Byte(unsigned char byte) const {
  return byte;
}

const TestModel& SharedTestModel() {
  static const TestModel model;
  return model;
}

}  // namespace tandem
