// One engine that goes from strategy to strategy is like an engine for each.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "perf/layer_costs.h"

namespace tandem {
namespace {

class UseStrategyTest : public ::testing::Test {
 protected:
  UseStrategyTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-use-strategy-" + std::to_string(getpid()))) {}
  ~UseStrategyTest() override { std::filesystem::remove_all(cache_folder_); }

  // By default the gpu tier has room for about a quarter of the requests of RunAll.
  std::unique_ptr<Engine> Create(const std::string& strategy, bool cpu_tier,
                                 int64_t gpu_tier_tokens = 320) const {
    EngineOptions options;
    options.model = FixturePath("families/llama2/model.gguf");
    options.strategy = strategy;
    options.dtype = DType::kF32;
    options.cpu_threads = 2;
    options.max_num_batched_tokens = 64;
    options.gpu_kv_cache = SizeInTokens(gpu_tier_tokens);
    if (cpu_tier) options.cpu_kv_cache = SizeInTokens(2048);
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_;
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static RequestSpec SpecOf(int index, int64_t max_tokens) {
    RequestSpec spec;
    for (int i = 0; i < 10 + 5 * (index % 7); ++i) spec.prompt_tokens.push_back((31 * index + 7 * i) % 300);
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = true;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }

  static constexpr int kRequests = 24;
  static constexpr int64_t kTokens = 24;

  static std::vector<std::vector<int32_t>> RunAll(Engine& engine) {
    std::vector<Submitted> submitted;
    for (int i = 0; i < kRequests; ++i) submitted.push_back(SubmitTo(engine, SpecOf(i, kTokens)));
    std::vector<std::vector<int32_t>> tokens;
    for (const Submitted& each : submitted) {
      EXPECT_EQ(each.output->Wait(), FinishReason::kLength);
      tokens.push_back(each.output->TokenIds());
    }
    engine.CancelAll();
    return tokens;
  }

  std::filesystem::path cache_folder_;
};

TEST_F(UseStrategyTest, SameTokensAndCountersOfItsOwn) {
  const auto engine = Create("auto", true);
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->UseStrategy("gpu-only", 0, Engine::Learned::kForget).ok());
  const auto expected = RunAll(*engine);
  EXPECT_EQ(engine->Stats().cpu_tier_tokens, 0U);
  for (const char* strategy : {"full-offload", "asymmetric", "async", "gpu-only", "auto"}) {
    const Status used = engine->UseStrategy(strategy, 0, Engine::Learned::kForget);
    ASSERT_TRUE(used.ok()) << used.error().message;
    EXPECT_EQ(engine->options().strategy, strategy);
    EXPECT_EQ(engine->Stats().iterations, 0U);
    EXPECT_EQ(engine->Stats().max_cpu_kv_tokens, 0);
    EXPECT_EQ(RunAll(*engine), expected) << strategy;
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.generation_tokens, static_cast<uint64_t>(kRequests * kTokens)) << strategy;
    EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total) << strategy;
    EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total) << strategy;
    if (std::string(strategy) == "gpu-only") {
      EXPECT_EQ(stats.cpu_tier_tokens, 0U);
    }
    if (std::string(strategy) == "full-offload") {
      EXPECT_EQ(stats.cpu_tier_tokens, stats.generation_tokens);
    }
  }
}

TEST_F(UseStrategyTest, KeepsWhatIterationsTaughtWhereItIsAskedTo) {
  const auto engine = Create("auto", true);
  ASSERT_NE(engine, nullptr);
  const auto cpu_attention_us = [&] { return engine->LearnedCosts()->CpuAttentionUs(8, 1'000); };
  const auto linear_us = [&] { return engine->LearnedCosts()->LinearUs(8); };
  const double measured_us = linear_us();
  RunAll(*engine);
  const double learned_us = linear_us();
  const double learned_cpu_us = cpu_attention_us();
  EXPECT_NE(learned_us, measured_us);
  ASSERT_TRUE(engine->UseStrategy("gpu-only", 0, Engine::Learned::kKeep).ok());
  ASSERT_TRUE(engine->UseStrategy("auto", 0, Engine::Learned::kKeep).ok());
  EXPECT_EQ(linear_us(), learned_us);
  EXPECT_EQ(cpu_attention_us(), learned_cpu_us);
  ASSERT_TRUE(engine->UseStrategy("auto", 0, Engine::Learned::kForget).ok());
  EXPECT_EQ(linear_us(), measured_us);
}

TEST_F(UseStrategyTest, ContextsAreAsLongAsTheStrategyCanServe) {
  constexpr int64_t kGpuTierTokens = 64;
  const auto engine = Create("auto", true, kGpuTierTokens);
  ASSERT_NE(engine, nullptr);
  const int64_t longest = engine->options().max_model_len;
  ASSERT_GT(longest, kGpuTierTokens) << "the cpu tier holds more";
  for (const char* strategy : {"gpu-only", "full-offload", "gpu-only", "auto"}) {
    ASSERT_TRUE(engine->UseStrategy(strategy, 0, Engine::Learned::kKeep).ok());
    EXPECT_EQ(engine->options().max_model_len, std::string(strategy) == "gpu-only" ? kGpuTierTokens : longest)
        << strategy;
  }
}

TEST_F(UseStrategyTest, CancelsWhatIsInFlight) {
  const auto engine = Create("auto", true);
  ASSERT_NE(engine, nullptr);
  const auto expected = RunAll(*engine);
  for (const char* strategy : {"async", "asymmetric", "async"}) {
    ASSERT_TRUE(engine->UseStrategy(strategy, 1, Engine::Learned::kForget).ok());
    std::vector<Submitted> cut;
    for (int i = 0; i < kRequests; ++i) cut.push_back(SubmitTo(*engine, SpecOf(i, 400)));
    cut.front().output->WaitForTokens(20);
    ASSERT_TRUE(engine->UseStrategy("auto", 0, Engine::Learned::kForget).ok());
    for (const Submitted& each : cut) EXPECT_EQ(each.output->Wait(), FinishReason::kCancelled);
    EXPECT_EQ(RunAll(*engine), expected) << strategy;
  }
}

TEST_F(UseStrategyTest, SaysWhatIsMissing) {
  const auto without_tier = Create("gpu-only", false);
  ASSERT_NE(without_tier, nullptr);
  const auto expected = RunAll(*without_tier);
  const Status no_tier = without_tier->UseStrategy("asymmetric", 0, Engine::Learned::kForget);
  ASSERT_FALSE(no_tier.ok());
  EXPECT_EQ(no_tier.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(no_tier.error().message.find("cpu tier"), std::string::npos) << no_tier.error().message;
  EXPECT_FALSE(without_tier->UseStrategy("fastest", 0, Engine::Learned::kForget).ok());
  // It goes on as it was.
  EXPECT_EQ(RunAll(*without_tier), expected);

  const auto without_riders = Create("asymmetric", true);
  ASSERT_NE(without_riders, nullptr);
  const Status no_riders = without_riders->UseStrategy("async", 0, Engine::Learned::kForget);
  ASSERT_FALSE(no_riders.ok());
  EXPECT_NE(no_riders.error().message.find("riders"), std::string::npos) << no_riders.error().message;
}

}  // namespace
}  // namespace tandem
