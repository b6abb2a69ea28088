// The file of choices: what was written is read, and nothing else is believed.
#include "trial/choice_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem {
namespace {

using testing::HasSubstr;

TrialMachine Machine() {
  return {.cpu = "AMD EPYC", .cpu_signature = 0xb00f21, .instruction_sets = "AVX2, AVX-512"};
}

KeptChoices Choices() {
  AttentionUse decodes = {
      .num_threads = 2, .head_dim = 128, .group_size = 4, .span_heads = 8, .any_isa = true};
  AttentionUse single = {.num_threads = 1, .kv_dtype = DType::kF32, .head_dim = 64};
  KeptChoices choices;
  choices.attention.emplace_back(
      decodes, AttentionChoice{.isa = CpuIsa::kPortable,
                               .fetch = {.level = FetchLevel::kL1, .half_piece_ahead = true},
                               .most_readers = 2,
                               .speedup = 1.25});
  choices.attention.emplace_back(
      single, AttentionChoice{.isa = BestCpuIsa(),
                              .fetch = {.level = FetchLevel::kNonTemporal, .every_second_line = true}});
  choices.products.emplace_back(
      ProductUse{.num_threads = 2, .dtype = DType::kBF16},
      ProductChoice{.fetch = {.level = FetchLevel::kL1, .distance_bytes = 2048}, .speedup = 1.0625});
  return choices;
}

class ChoiceFileTest : public testing::Test {
 protected:
  ChoiceFileTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(ChoicePath(folder_.string(), Machine())) {}
  ~ChoiceFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  // The file with `from` in its text replaced.
  Result<KeptChoices> ReadWith(const std::string& from, const std::string& to) {
    EXPECT_TRUE(WriteChoices(path_, Machine(), Choices()).ok());
    std::string text = Text();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(path_) << text;
    return ReadChoices(path_, Machine());
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ChoiceFileTest, ReadsWhatItWrote) {
  EXPECT_EQ(ReadChoices(path_, Machine()).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(WriteChoices(path_, Machine(), Choices()).ok());
  const auto read = ReadChoices(path_, Machine());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().attention, Choices().attention);
  EXPECT_EQ(read.value().products, Choices().products);
}

TEST_F(ChoiceFileTest, FindsAUseAndTheInstructionSetOfOtherThreads) {
  const KeptChoices choices = Choices();
  AttentionUse use = choices.attention.front().first;
  ASSERT_NE(choices.Find(use), nullptr);
  EXPECT_EQ(*choices.Find(use), choices.attention.front().second);
  use.num_threads = 9;
  EXPECT_EQ(choices.Find(use), nullptr);
  ASSERT_NE(choices.FindWithAnyThreads(use), nullptr);
  EXPECT_EQ(choices.FindWithAnyThreads(use)->isa, CpuIsa::kPortable);
  use.group_size = 5;
  EXPECT_EQ(choices.FindWithAnyThreads(use), nullptr);
  EXPECT_EQ(choices.Find(ProductUse{.num_threads = 2, .dtype = DType::kF32}), nullptr);
}

TEST_F(ChoiceFileTest, AnotherMachineHasAnotherFileAndIsNamed) {
  TrialMachine other = Machine();
  other.cpu_signature = 0xa10f11;
  EXPECT_NE(ChoicePath("x", other), ChoicePath("x", Machine()));
  ASSERT_TRUE(WriteChoices(path_, Machine(), Choices()).ok());
  const auto read = ReadChoices(path_, other);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(read.error().message, HasSubstr("AMD EPYC"));
}

TEST_F(ChoiceFileTest, ImpossibleContentIsRefused) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"version\": 2", "\"version\": 1"},
           {"\"level\": \"L1\"", "\"level\": \"L7\""},
           {"\"level\": \"L1\"", "\"level\": 1"},
           {"\"isa\": \"portable\"", "\"isa\": \"AVX-9000\""},
           {"\"distance_bytes\": 2048", "\"distance_bytes\": -64"},
           {"\"distance_bytes\": 2048", "\"distance_bytes\": 1e30"},
           {"\"threads\": 2", "\"threads\": 0"},
           {"\"most_readers\": 2", "\"most_readers\": 9"},
           {"\"speedup\": 1.25", "\"speedup\": \"fast\""},
           {"\"half_piece_ahead\": true", "\"half_piece_ahead\": 1"},
           {"\"every_second_line\": false", "\"every_second_line\": true"},
           {"\"products\"", "\"product\""},
       }) {
    const auto read = ReadWith(from, to);
    ASSERT_FALSE(read.ok()) << to;
    EXPECT_EQ(read.error().code, ErrorCode::kMalformedFile) << to;
    EXPECT_THAT(read.error().message, HasSubstr(path_)) << to;
  }
}

TEST_F(ChoiceFileTest, EveryTruncationIsNoticed) {
  ASSERT_TRUE(WriteChoices(path_, Machine(), Choices()).ok());
  const std::string text = Text();
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    std::ofstream(path_) << text.substr(0, size);
    EXPECT_EQ(ReadChoices(path_, Machine()).error().code, ErrorCode::kMalformedFile) << size;
  }
}

}  // namespace
}  // namespace tandem
