// One shard of several without the others.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "conformance/decoder_harness.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "perf/cost_table.h"

namespace tandem {
namespace {

constexpr double kSumUs = 400;
constexpr int64_t kNumShards = 2;

class LoneShardEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  LoneShardEngineTest()
      : folder_(std::filesystem::temp_directory_path() / ("tandem-lone-shard-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "sums.json")
        << R"({"shards": 2, "cols": 64, "dtype": "bf16", "all_reduces": [{"rows": 1, "us": 400}, )"
        << R"({"rows": 1000000, "us": 400.001}]})";
  }
  ~LoneShardEngineTest() override { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    if (GetParam() == "cuda" && !DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
  }

  EngineOptions Options() const {
    EngineOptions options;
    options.device = GetParam();
    options.dummy = "tiny";
    options.dtype = DType::kF32;
    options.strategy = "asymmetric";
    options.tensor_parallel_size = kNumShards;
    options.lone_shard = folder_ / "sums.json";
    options.gpu_kv_cache = SizeInTokens(1024);
    options.cpu_kv_cache = SizeInTokens(2048);
    options.cpu_threads = 4;
    options.max_num_batched_tokens = 64;
    options.profile_seconds = 1;
    options.cpu_trial = false;
    options.show_progress = false;
    options.cache_folder = folder_;
    return options;
  }
  std::string ErrorOf(const EngineOptions& options) const {
    const auto engine = Engine::Create(options);
    return engine.ok() ? "" : engine.error().message;
  }

  std::filesystem::path folder_;
};

TEST_P(LoneShardEngineTest, RequestsTakeTheTimeOfTheSums) {
  auto engine = Engine::Create(Options());
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_NE((*engine)->device_description().find("one shard of 2 x "), std::string::npos)
      << (*engine)->device_description();
  // Tiers are of all together, and in this process half of them.
  EXPECT_EQ((*engine)->Stats().gpu_blocks_total * (*engine)->Stats().block_size, 1024);
  const std::vector<CostPoint>& sums = (*engine)->cost_table()->measurements().all_reduce;
  ASSERT_FALSE(sums.empty());
  for (const CostPoint& sum : sums) {
    EXPECT_GE(sum.us, 0.9 * kSumUs) << sum.count;
    EXPECT_LT(sum.us, 10 * kSumUs) << sum.count;
  }
  RequestSpec spec;
  spec.prompt_tokens = {5, 6, 7, 8, 9};
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = 12;
  const auto begin = std::chrono::steady_clock::now();
  const Submitted submitted = SubmitTo(**engine, std::move(spec));
  EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength);
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  // Each layer has two, the embedding one.
  const auto num_sums = 12 * (2 * (*engine)->model_config().num_layers + 1);
  EXPECT_GT(us, 0.9 * kSumUs * static_cast<double>(num_sums));
}

TEST_P(LoneShardEngineTest, SaysWhatItCannotDo) {
  EngineOptions options = Options();
  options.tensor_parallel_size = 4;
  EXPECT_NE(ErrorOf(options).find("sums over 2 shards were measured, not over 4"), std::string::npos);
  options = Options();
  options.tensor_parallel_size = 1;
  EXPECT_NE(ErrorOf(options).find("needs --tensor-parallel-size"), std::string::npos);
  options = Options();
  options.lone_shard = "/no/such/file";
  EXPECT_NE(ErrorOf(options).find("/no/such/file"), std::string::npos);
  options = Options();
  options.dummy.clear();
  options.model = "/some/model";
  EXPECT_NE(ErrorOf(options).find("needs --dummy"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, LoneShardEngineTest, ::testing::Values("host", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace tandem
