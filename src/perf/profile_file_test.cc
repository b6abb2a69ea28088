#include "perf/profile_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace tandem {
namespace {

ProfileKey Key() {
  ProfileKey key;
  key.num_layers = 32;
  key.hidden_size = 4096;
  key.dtype = "bf16";
  key.gpu_kv = "bf16";
  key.cpu_kv = "int8";
  key.weights = "int4, groups of 32 with minimum";
  key.device = "cuda: NVIDIA H200, a slice of 16 of 132 SMs";
  key.gpu_sm_limit = 16;
  key.cpu_threads = 15;
  key.cpu_isa = "15 threads, AMX";
  return key;
}

CostMeasurements Measurements() {
  return {.num_layers = 32,
          .linear = {{1, 198.1}, {2048, 1.0 / 3}},
          .row_tiles = {.steps = {{64, 1}, {256, 16}}, .last_tile_rows = 128},
          .gpu_decode_attention = {{1, {{64, 3.25}, {256, 4}}}, {4, {{256, 4.5}}}},
          .prefill_attention = {{16, {{16, 7}}}},
          .outside_layers = {{0, 100}, {1, 350}},
          .cpu_attention = {{1, {{64, 12}}}},
          .shared_reads = {{1, 100}, {8, 30}},
          .exchange = {{1, 20}},
          .swap = {{32, 4}}};
}

constexpr ProfileCoverage kCoverage = {
    .max_rows = 2048, .max_context = 4096, .gpu_kv_tokens = 26400, .cpu_kv_tokens = 600000};

class ProfileFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tandem_profile_test." + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    path_ = ProfilePath((folder_ / "deep").string(), Key());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write() {
    const Status written = WriteProfile(path_, Key(), kCoverage, Measurements());
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  std::string Text() const {
    std::ifstream in(path_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // The error of a file with this text.
  Error ErrorOf(const std::string& text) const {
    std::ofstream(path_) << text;
    auto table = ReadProfile(path_, Key(), kCoverage);
    EXPECT_FALSE(table.ok()) << text.substr(0, 200);
    return table.ok() ? Error{} : table.error();
  }
  Error ErrorOf(const nlohmann::ordered_json& root) const { return ErrorOf(root.dump()); }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ProfileFileTest, ReadsWhatItWrote) {
  Write();
  const auto table = ReadProfile(path_, Key(), kCoverage);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->measurements(), Measurements());
  // Nothing else is left behind, and writing again replaces it.
  Write();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "deep"), {}), 1);
}

TEST_F(ProfileFileTest, ShardsHaveTheirSumsAndAFileOfTheirOwn) {
  ProfileKey key = Key();
  key.num_shards = 2;
  const std::string path = ProfilePath(folder_.string(), key);
  EXPECT_NE(path, ProfilePath(folder_.string(), Key()));
  CostMeasurements measurements = Measurements();
  measurements.all_reduce = {{1, 3.7}, {256, 17.75}};
  ASSERT_TRUE(WriteProfile(path, key, kCoverage, measurements).ok());
  const auto table = ReadProfile(path, key, kCoverage);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->measurements(), measurements);
  EXPECT_EQ(ReadStoredProfile(path).value().key, key);
  // A whole model's has no word of either.
  Write();
  EXPECT_EQ(Text().find("shards"), std::string::npos);
  EXPECT_EQ(Text().find("all_reduce"), std::string::npos);
  EXPECT_EQ(ReadStoredProfile(path_).value().key, Key());
  EXPECT_FALSE(ReadProfile(path_, key, kCoverage).ok());
}

TEST_F(ProfileFileTest, NameIsReadableAndDiffersWithTheKey) {
  const std::string name = std::filesystem::path(path_).filename().string();
  EXPECT_EQ(name.find("profile4-32x4096-bf16-cuda-NVIDIA-H200-16sm-15threads-"), 0U) << name;
  ProfileKey other = Key();
  other.intermediate_size = 14336;
  EXPECT_NE(ProfilePath("x", other), ProfilePath("x", Key()));
}

TEST_F(ProfileFileTest, MissingFile) {
  const auto table = ReadProfile(path_, Key(), kCoverage);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kNotFound);
}

TEST_F(ProfileFileTest, AFolderInItsPlaceIsAnError) {
  std::filesystem::create_directories(path_);
  const auto table = ReadProfile(path_, Key(), kCoverage);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kIo) << table.error().message;
  EXPECT_EQ(WriteProfile(path_, Key(), kCoverage, Measurements()).error().code, ErrorCode::kIo);
}

TEST_F(ProfileFileTest, CannotBeWritten) {
  const Status written = WriteProfile("/proc/no-such/profile.json", Key(), kCoverage, Measurements());
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

TEST_F(ProfileFileTest, AnotherKeyIsNamed) {
  Write();
  ProfileKey other = Key();
  other.cpu_threads = 8;
  const auto table = ReadProfile(path_, other, kCoverage);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(table.error().message.find("measured with cpu_threads 15, not 8"), std::string::npos)
      << table.error().message;
}

TEST_F(ProfileFileTest, ServesAtMostTwiceItsCoverage) {
  Write();
  ProfileCoverage wanted = kCoverage;
  wanted.gpu_kv_tokens = 2 * kCoverage.gpu_kv_tokens;
  wanted.cpu_kv_tokens = 0;
  wanted.max_rows = 100;
  EXPECT_TRUE(ReadProfile(path_, Key(), wanted).ok());
  wanted.gpu_kv_tokens = 3 * kCoverage.gpu_kv_tokens;
  const auto table = ReadProfile(path_, Key(), wanted);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(ProfileCoverage{}.Serves({.cpu_kv_tokens = 1}));
}

// One of version 2 has no tiles, and what lies between its points would be taken for straight.
TEST_F(ProfileFileTest, AnotherVersion) {
  Write();
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(Text());
  root["version"] = 2;
  const Error error = ErrorOf(root);
  EXPECT_EQ(error.code, ErrorCode::kMalformedFile);
  EXPECT_NE(error.message.find("version 2"), std::string::npos) << error.message;
}

TEST_F(ProfileFileTest, ImpossibleContent) {
  Write();
  const nlohmann::ordered_json good = nlohmann::ordered_json::parse(Text());
  const auto changed = [&](const char* pointer, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json root = good;
    root[nlohmann::ordered_json::json_pointer(pointer)] = value;
    return ErrorOf(root).code;
  };
  EXPECT_EQ(changed("/tables/linear/0/1", -1), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0/1", nullptr), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0/1", "1"), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0/1", true), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0/0", 1e30), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0/0", 1.5), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear/0", nlohmann::ordered_json::array()), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/linear", 3), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/swap", nlohmann::ordered_json::object()), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/cpu_attention/0/rows", 0), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/row_tiles", nullptr), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/row_tiles/last_tile_rows", 0), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/row_tiles/steps/1/0", 64), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables/row_tiles/steps/0/1", 0.5), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/tables", nullptr), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/coverage/max_rows", "many"), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/key", nlohmann::ordered_json::array()), ErrorCode::kMalformedFile);
  EXPECT_EQ(changed("/version", nullptr), ErrorCode::kMalformedFile);
  std::string overflow = good.dump();
  overflow.replace(overflow.find("198.1"), 5, "1e999");
  EXPECT_EQ(ErrorOf(overflow).code, ErrorCode::kMalformedFile);
  overflow = good.dump();
  overflow.replace(overflow.find("198.1"), 5, "  NaN");
  EXPECT_EQ(ErrorOf(overflow).code, ErrorCode::kMalformedFile);
}

TEST_F(ProfileFileTest, EveryTruncationIsNoticed) {
  Write();
  const std::string text = Text();
  for (size_t size = 0; size + 2 < text.size(); size += 31)
    EXPECT_EQ(ErrorOf(text.substr(0, size)).code, ErrorCode::kMalformedFile) << size;
  EXPECT_EQ(ErrorOf(std::string(5 << 20, ' ')).code, ErrorCode::kMalformedFile);
}

TEST_F(ProfileFileTest, DamageNeverCrashes) {
  Write();
  const std::string text = Text();
  std::mt19937 random(3);
  int num_noticed = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = text;
    for (int j = 0; j < 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    std::ofstream(path_) << damaged;
    const auto table = ReadProfile(path_, Key(), kCoverage);
    if (table.ok()) continue;
    ++num_noticed;
    EXPECT_FALSE(table.error().message.empty());
  }
  EXPECT_GT(num_noticed, 200);
}

}  // namespace
}  // namespace tandem
