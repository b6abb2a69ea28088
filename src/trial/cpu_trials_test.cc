// Trials on the real kernels: they are made once, kept, and not believed from a damaged file. Which candidate
// wins is the machine's affair.
#include "trial/cpu_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "device/host/host_device.h"

namespace tandem {
namespace {

class CpuTrialsTest : public testing::Test {
 protected:
  CpuTrialsTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(ChoicePath(folder_.string(), ThisTrialMachine())) {
    std::filesystem::remove_all(folder_);
  }
  ~CpuTrialsTest() override { std::filesystem::remove_all(folder_); }

  static AttentionUse Decodes() {
    return {.num_threads = 2, .head_dim = 64, .group_size = 2, .span_heads = 3, .any_isa = true};
  }

  std::filesystem::path folder_;
  std::string path_;
  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
};

TEST_F(CpuTrialsTest, TriesOnceAndKeepsIt) {
  CpuTrials first(folder_.string(), device_.get());
  const AttentionChoice attention = first.Choose(Decodes());
  const ProductChoice products = first.Choose(ProductUse{.num_threads = 2, .dtype = DType::kF32});
  EXPECT_EQ(first.num_trials(), 2);
  EXPECT_THAT(SupportedCpuIsas(), testing::Contains(attention.isa));
  EXPECT_EQ(first.Choose(Decodes()), attention);
  EXPECT_EQ(first.num_trials(), 2);

  CpuTrials second(folder_.string(), device_.get());
  EXPECT_EQ(second.Choose(Decodes()), attention);
  EXPECT_EQ(second.Choose(ProductUse{.num_threads = 2, .dtype = DType::kF32}), products);
  EXPECT_EQ(second.num_trials(), 0);
}

TEST_F(CpuTrialsTest, WhatIsKeptIsUsedWhateverItIs) {
  const AttentionChoice odd = {.isa = CpuIsa::kPortable,
                               .fetch = {.level = FetchLevel::kNonTemporal, .every_second_line = true},
                               .speedup = 17};
  KeptChoices kept;
  kept.attention.emplace_back(Decodes(), odd);
  ASSERT_TRUE(WriteChoices(path_, ThisTrialMachine(), kept).ok());
  CpuTrials trials(folder_.string(), device_.get());
  EXPECT_EQ(trials.Choose(Decodes()), odd);
  EXPECT_EQ(trials.num_trials(), 0);
  // With other threads the fetches are tried, the instruction set is what it was.
  AttentionUse more_threads = Decodes();
  more_threads.num_threads = 1;
  EXPECT_EQ(trials.Choose(more_threads).isa, CpuIsa::kPortable);
  EXPECT_EQ(trials.num_trials(), 1);
}

TEST_F(CpuTrialsTest, TheInstructionSetStaysTheBestWhereTheUseLeavesNoChoice) {
  CpuTrials trials("", device_.get());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    AttentionUse use = Decodes();
    use.any_isa = false;
    use.kv_dtype = dtype;
    EXPECT_EQ(trials.Choose(use).isa, BestCpuIsa());
  }
}

TEST_F(CpuTrialsTest, ADamagedFileIsTriedAnewAndReplaced) {
  std::filesystem::create_directories(folder_);
  std::ofstream(path_) << "{\"version\": 1, \"mach";
  CpuTrials trials(folder_.string(), device_.get());
  const AttentionChoice choice = trials.Choose(Decodes());
  EXPECT_EQ(trials.num_trials(), 1);
  const auto read = ReadChoices(path_, ThisTrialMachine());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_NE(read.value().Find(Decodes()), nullptr);
  EXPECT_EQ(*read.value().Find(Decodes()), choice);
}

TEST_F(CpuTrialsTest, WithoutAFolderNothingIsKept) {
  CpuTrials trials("", device_.get());
  trials.Choose(ProductUse{.num_threads = 1, .dtype = DType::kBF16});
  EXPECT_EQ(trials.num_trials(), 1);
  CpuTrials others("", device_.get());
  others.Choose(ProductUse{.num_threads = 1, .dtype = DType::kBF16});
  EXPECT_EQ(others.num_trials(), 1);
}

// Where the file cannot be: the choice holds for this start.
TEST_F(CpuTrialsTest, AFolderThatCannotBeMadeIsNoError) {
  std::ofstream(folder_) << "a file";
  CpuTrials trials((folder_ / "deep").string(), device_.get());
  const ProductUse use = {.num_threads = 1, .dtype = DType::kF32};
  const ProductChoice choice = trials.Choose(use);
  EXPECT_EQ(trials.Choose(use), choice);
  EXPECT_EQ(trials.num_trials(), 1);
}

}  // namespace
}  // namespace tandem
