#include "load/pooling_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "load/checkpoint.h"
#include "load/files_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class PoolingConfigTest : public testing::Test {
 protected:
  PoolingConfigTest()
      : folder_(std::filesystem::temp_directory_path() / ("tandem-pooling-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_ / "1_Pooling");
  }
  ~PoolingConfigTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  // As sentence-transformers writes it.
  void WriteModules(const std::string& last = "Normalize") const {
    Write("modules.json",
          R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "name": "2", "path": "2_)" +
              last + R"(", "type": "sentence_transformers.models.)" + last + R"("}])");
  }
  std::optional<Pooling> Read() const {
    const auto pooling = ReadFolderPooling(folder_.string());
    EXPECT_TRUE(pooling.ok()) << pooling.error().message;
    return pooling.ok() ? *pooling : std::nullopt;
  }
  std::string ErrorOf(ErrorCode code) const {
    const auto pooling = ReadFolderPooling(folder_.string());
    EXPECT_FALSE(pooling.ok());
    if (pooling.ok()) return "";
    EXPECT_EQ(pooling.error().code, code);
    return pooling.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(PoolingConfigTest, WithoutModulesNothingIsSaid) {
  EXPECT_FALSE(IsSentenceTransformer(folder_.string()));
  EXPECT_EQ(Read(), std::nullopt);
}

TEST_F(PoolingConfigTest, ModesOfThePoolingModule) {
  WriteModules();
  EXPECT_TRUE(IsSentenceTransformer(folder_.string()));
  const auto with = [&](const std::string& fields) {
    Write("1_Pooling/config.json", "{\"word_embedding_dimension\": 1024" + fields + "}");
    return Read();
  };
  EXPECT_EQ(with(R"(, "pooling_mode_cls_token": false, "pooling_mode_lasttoken": true)"), Pooling::kLast);
  EXPECT_EQ(with(R"(, "pooling_mode_mean_tokens": true)"), Pooling::kMean);
  EXPECT_EQ(with(R"(, "pooling_mode_cls_token": true)"), Pooling::kFirst);
  EXPECT_EQ(with(""), std::nullopt);
}

TEST_F(PoolingConfigTest, WhatWouldChangeEmbeddingsIsRefused) {
  WriteModules();
  Write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(ErrorOf(ErrorCode::kUnsupported), HasSubstr("are supported, not pooling_mode_max_tokens"));
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  EXPECT_THAT(ErrorOf(ErrorCode::kUnsupported), HasSubstr("several at once"));
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  WriteModules("Dense");
  EXPECT_THAT(ErrorOf(ErrorCode::kUnsupported), HasSubstr("module 'sentence_transformers.models.Dense'"));
}

TEST_F(PoolingConfigTest, DamagedFilesAreNamed) {
  WriteModules();
  EXPECT_THAT(ErrorOf(ErrorCode::kNotFound), HasSubstr("1_Pooling/config.json"));
  for (const char* text : {"", "{}", "[1]", "[{}]", "[{\"type\": 3}]", "[", "null"}) {
    Write("modules.json", text);
    EXPECT_THAT(ErrorOf(ErrorCode::kMalformedFile), HasSubstr("modules.json")) << text;
  }
}

TEST(PoolingOfGguf, IsItsMetadata) {
  const TemporaryFolder folder;
  const auto pooling_of = [&](uint32_t type) {
    const auto add = [&](GgufWriter* writer) { writer->IntEntry("llama.pooling_type", type); };
    const auto opened =
        Checkpoint::Open(folder.Write("model.gguf", TinyLlamaGguf(TinyLlamaTensors(), 1, add).bytes()));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return (*opened)->config().pooling;
  };
  EXPECT_EQ(pooling_of(1), Pooling::kMean);
  EXPECT_EQ(pooling_of(2), Pooling::kFirst);
  for (const uint32_t type : {0U, 3U, 4U}) EXPECT_EQ(pooling_of(type), Pooling::kLast);
}

}  // namespace
}  // namespace tandem
