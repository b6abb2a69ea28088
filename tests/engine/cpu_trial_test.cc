// An engine's CPU kernels compute as the first start has found.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "trial/choice_file.h"

namespace tandem {
namespace {

class CpuTrialTest : public ::testing::Test {
 protected:
  CpuTrialTest()
      : folder_(std::filesystem::temp_directory_path() / ("tandem-cpu-trial-" + std::to_string(getpid()))),
        path_(ChoicePath(folder_.string(), ThisTrialMachine())) {}
  ~CpuTrialTest() override { std::filesystem::remove_all(folder_); }

  // The greedy tokens of a prompt, from an engine of its own.
  std::vector<int32_t> Run(bool cpu_trial, DType dtype = DType::kF32) const {
    EngineOptions options;
    options.model = FixturePath("families/llama2/model.gguf");
    options.strategy = "gpu-only";
    options.dtype = dtype;
    options.cpu_threads = 2;
    options.gpu_kv_cache = SizeInTokens(2048);
    options.show_progress = false;
    options.cpu_trial = cpu_trial;
    options.cache_folder = folder_.string();
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    if (!engine.ok()) return {};
    RequestSpec spec;
    for (int32_t i = 0; i < 70; ++i) spec.prompt_tokens.push_back(31 * i % 300);
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = true;
    spec.sampling.max_tokens = 24;
    const Submitted request = SubmitTo(*engine.value(), std::move(spec));
    EXPECT_EQ(request.output->Wait(), FinishReason::kLength);
    return request.output->TokenIds();
  }
  KeptChoices Kept() const {
    auto kept = ReadChoices(path_, ThisTrialMachine());
    EXPECT_TRUE(kept.ok()) << (kept.ok() ? "" : kept.error().message);
    return kept.ok() ? kept.value() : KeptChoices();
  }
  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(CpuTrialTest, AStartWithAKeptChoiceMeasuresNothing) {
  const std::vector<int32_t> expected = Run(true);
  KeptChoices kept = Kept();
  ASSERT_EQ(kept.attention.size(), 1U);
  ASSERT_EQ(kept.products.size(), 1U);
  EXPECT_EQ(kept.attention.front().second.isa, BestCpuIsa());
  // What no trial would find: it stays as it is.
  kept.attention.front().second.fetch = {.level = FetchLevel::kNonTemporal, .every_second_line = true};
  kept.attention.front().second.speedup = 17;
  kept.products.front().second.fetch = {.level = FetchLevel::kNonTemporal, .distance_bytes = 64};
  ASSERT_TRUE(WriteChoices(path_, ThisTrialMachine(), kept).ok());
  const std::string text = Text();
  EXPECT_EQ(Run(true), expected);
  EXPECT_EQ(Text(), text);
}

TEST_F(CpuTrialTest, AnotherDTypeIsAnotherUse) {
  Run(true);
  Run(true, DType::kBF16);
  EXPECT_EQ(Kept().attention.size(), 2U);
  EXPECT_EQ(Kept().products.size(), 2U);
}

TEST_F(CpuTrialTest, ADamagedFileIsReplaced) {
  std::filesystem::create_directories(folder_);
  std::ofstream(path_) << "{}";
  Run(true);
  EXPECT_EQ(Kept().attention.size(), 1U);
}

TEST_F(CpuTrialTest, WithoutTheTrialNothingIsKept) {
  EXPECT_EQ(Run(false), Run(true));
  std::filesystem::remove_all(folder_);
  Run(false);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(CpuTrialTest, AnInstructionSetMayBeAskedFor) {
  EngineOptions options;
  options.model = FixturePath("families/llama2/model.gguf");
  options.strategy = "full-offload";
  options.dtype = DType::kBF16;
  options.cpu_threads = 2;
  options.gpu_kv_cache = SizeInTokens(512);
  options.cpu_kv_cache = SizeInTokens(512);
  options.show_progress = false;
  options.cpu_trial = false;
  options.measure_costs = true;
  options.profile_seconds = 1;
  options.cache_folder = folder_.string();
  options.cpu_attention_isa = "avx3";
  const auto refused = Engine::Create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().param, "cpu-attention-isa");
  EXPECT_NE(refused.error().message.find("portable"), std::string::npos) << "what there is";

  options.cpu_attention_isa = "portable";
  ASSERT_TRUE(Engine::Create(options).ok());
  std::vector<std::string> said;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    if (file.path().filename().string().starts_with("profile")) said.push_back(text.str());
  }
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said.front().find("2 threads, portable"), std::string::npos) << said.front();
}

}  // namespace
}  // namespace tandem
