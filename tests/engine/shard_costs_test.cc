// Costs of a model in shards: what the shards do together is measured on all of them.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "conformance/decoder_harness.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "perf/cost_table.h"

namespace tandem {
namespace {

EngineOptions TinyOptions(const std::string& device, int64_t num_shards) {
  EngineOptions options;
  options.device = device;
  options.dummy = "tiny";
  if (device == "cuda" && num_shards > 1) options.gpu_sm_slices = static_cast<int>(num_shards);
  options.tensor_parallel_size = num_shards;
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.strategy = "asymmetric";
  options.max_model_len = 512;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 64;
  options.gpu_kv_cache = SizeInTokens(1024);
  options.cpu_kv_cache = SizeInTokens(4096);
  options.measure_costs = true;
  options.profile_seconds = 3;
  options.cache_folder = "/proc/no-such-folder";
  options.show_progress = false;
  return options;
}

class ShardCostsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda" && !DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(ShardCostsTest, TheProfileOfShardsHasTheirSums) {
  auto engine = Engine::Create(TinyOptions(GetParam(), 2));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const CostTable& table = *(*engine)->cost_table();
  const CostMeasurements& measured = table.measurements();
  ASSERT_FALSE(measured.all_reduce.empty());
  EXPECT_EQ(measured.all_reduce.front().count, 1);
  for (const CostPoint& point : measured.all_reduce) EXPECT_GT(point.us, 0) << point.count;
  EXPECT_GE(table.LinearUs(1), 2 * CostCurve(measured.all_reduce).Us(1));
  EXPECT_TRUE(measured.has_cpu_tier());

  // What was measured is left behind as if it had not been.
  RequestSpec spec;
  spec.prompt_tokens = {1, 2, 3};
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = 20;
  const Submitted submitted = SubmitTo(**engine, std::move(spec));
  EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength);
}

TEST_P(ShardCostsTest, AWholeModelHasNone) {
  auto engine = Engine::Create(TinyOptions(GetParam(), 1));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_TRUE((*engine)->cost_table()->measurements().all_reduce.empty());
}

INSTANTIATE_TEST_SUITE_P(Devices, ShardCostsTest, ::testing::Values("host", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace tandem
