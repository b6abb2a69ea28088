#include "forecast/sheet_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "perf/profile_file.h"

namespace tandem {
namespace {

// The efficiencies were fitted on this profile among others: what it says and what the figures of an H200
// come to must not drift apart.
TEST(SheetCostsTest, AreNearTheProfileOfASlice) {
  const auto profile =
      ReadStoredProfile(TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const CostTable& measured = profile->costs;
  const SheetMachine machine{
      .gpu = FindGpuCard("h200").value(), .host = FindHostMachine("xeon-16").value(), .gpu_sm_limit = 16};
  const CostTable costs = SheetCosts(machine, OutlineModel("llama-3.1-8b").value());
  ASSERT_EQ(costs.num_layers(), measured.num_layers());
  const auto expect_near = [](double predicted, double wanted, double share, const char* what, int64_t at) {
    EXPECT_NEAR(predicted, wanted, share * wanted) << what << " at " << at;
  };
  for (const int64_t rows : {1, 32, 128, 256, 512, 1024, 2048})
    expect_near(costs.LinearUs(rows), measured.LinearUs(rows), 0.1, "linear", rows);
  // Where reading and arithmetic take as long, the root is too long.
  expect_near(costs.LinearUs(64), measured.LinearUs(64), 0.12, "linear", 64);
  for (const int64_t tokens : {1024, 4096, 15'872}) {
    expect_near(costs.GpuDecodeAttentionUs(16, tokens), measured.GpuDecodeAttentionUs(16, tokens), 0.15,
                "decode attention", tokens);
  }
  for (const int64_t context : {4096, 16'000}) {
    expect_near(costs.PrefillAttentionUs(1024, context), measured.PrefillAttentionUs(1024, context), 0.15,
                "prefill attention", context);
  }
  for (const int64_t rows : {1, 64, 256, 1024})
    expect_near(costs.OutsideLayersUs(rows), measured.OutsideLayersUs(rows), 0.2, "outside", rows);
  for (const int64_t tokens : {16'384, 65'536})
    expect_near(costs.CpuAttentionUs(64, tokens), measured.CpuAttentionUs(64, tokens), 0.1, "cpu attention",
                tokens);
  for (const int64_t rows : {1, 64, 128, 512})
    expect_near(costs.ExchangeUs(rows), measured.ExchangeUs(rows), 0.15, "exchange", rows);
  for (const int64_t tokens : {512, 2048, 8192})
    expect_near(costs.SwapUs(tokens), measured.SwapUs(tokens), 0.15, "swap", tokens);
}

// And on these: decode iterations of bench_engine, requests of 1,024 tokens
// (evaluation/results/engine_h200.json).
TEST(SheetCostsTest, AreNearTheIterationsOfAWholeGpu) {
  const SheetMachine machine{.gpu = FindGpuCard("h200").value(), .host = FindHostMachine("xeon-16").value()};
  const CostTable costs = SheetCosts(machine, OutlineModel("llama-3.1-8b").value());
  const std::vector<CostPoint> measured = {{1, 3'828},  {8, 4'426},   {32, 5'817},
                                           {64, 6'911}, {128, 9'470}, {256, 15'633}};
  for (const CostPoint& iteration : measured) {
    const int64_t rows = iteration.count;
    const double layer_us = costs.LinearUs(rows) + costs.GpuDecodeAttentionUs(rows, 1024 * rows);
    const auto num_layers = static_cast<double>(costs.num_layers());
    EXPECT_NEAR(num_layers * layer_us + costs.OutsideLayersUs(rows), iteration.us, 0.08 * iteration.us)
        << rows;
  }
}

TEST(SheetCostsTest, GoByTheFigures) {
  const ModelOutline model = OutlineModel("llama-3.1-8b").value();
  SheetMachine machine{.gpu = FindGpuCard("l4").value(), .host = FindHostMachine("g5.4xlarge").value()};
  const CostTable costs = SheetCosts(machine, model);
  const Efficiencies of;
  // One row reads the weights, many rows are arithmetic.
  const double weights = static_cast<double>(model.layer_weights());
  EXPECT_NEAR(costs.LinearUs(1), of.per_layer_us + 2 * weights / (0.97 * 0.90 * 300e9) * 1e6,
              0.01 * costs.LinearUs(1));
  EXPECT_NEAR(costs.LinearUs(2048), 2 * weights * 2048 / (of.products_of_sheet * 121e12) * 1e6,
              0.02 * costs.LinearUs(2048));
  machine.host.num_cores = 2;
  EXPECT_DOUBLE_EQ(CpuAttentionRate(machine.host), of.core_bytes_per_s) << "few cores cannot draw it";
  const CostTable fp8 = SheetCosts(machine, OutlineModel("llama-3.1-8b:fp8").value());
  EXPECT_LT(fp8.LinearUs(1), costs.LinearUs(1));
  EXPECT_LT(fp8.LinearUs(2048), 0.55 * costs.LinearUs(2048));
}

TEST(SheetCostsTest, SumsOfShardsAreThoseOfTwoH200s) {
  const SheetMachine machine{
      .gpu = FindGpuCard("h200").value(), .host = FindHostMachine("xeon-16").value(), .num_shards = 2};
  const ModelOutline model = OutlineModel("llama-3.1-70b").value();
  // Half of the weights do not begin in half of the time.
  Efficiencies of;
  of.tile_start_us = 0;
  const CostTable costs = SheetCosts(machine, model, of);
  // Measured: rows of 8,192 bf16 over NVLink.
  for (const CostPoint& measured : std::vector<CostPoint>{
           {1, 3.7}, {8, 4.1}, {32, 5.4}, {64, 7.2}, {128, 10.8}, {256, 17.7}, {1024, 64}, {4096, 251}}) {
    EXPECT_NEAR(CostCurve(costs.measurements().all_reduce).Us(measured.count), measured.us,
                0.12 * measured.us)
        << measured.count;
  }
  // Half of the weights, of a context and of the host.
  SheetMachine one = machine;
  one.num_shards = 1;
  const CostTable whole = SheetCosts(one, model, of);
  EXPECT_TRUE(whole.measurements().all_reduce.empty());
  const double products_us = whole.LinearUs(64) - of.per_layer_us;
  EXPECT_NEAR(costs.LinearUs(64), of.per_layer_us + products_us / 2 + 2 * 7.2, 0.5);
  EXPECT_NEAR(costs.GpuDecodeAttentionUs(64, 65'536) - of.attention_start_us,
              (whole.GpuDecodeAttentionUs(64, 65'536) - of.attention_start_us) / 2, 1e-6);
  EXPECT_DOUBLE_EQ(costs.CpuAttentionUs(64, 65'536), whole.CpuAttentionUs(64, 65'536));
  // Cards without NVLink pay for it.
  SheetMachine cards = machine;
  cards.gpu.peer_bytes_per_s = 0;
  EXPECT_GT(SheetCosts(cards, model).LinearUs(1024), costs.LinearUs(1024) + 500);
}

TEST(ModelOutlineTest, CountsWhatPublishedModelsHave) {
  const auto llama = OutlineModel("llama-3.1-8b");
  ASSERT_TRUE(llama.ok());
  EXPECT_NEAR(static_cast<double>(llama->weight_bytes()), 2 * 8.03e9, 0.01 * 2 * 8.03e9);
  EXPECT_EQ(llama->kv_token_bytes(), 131'072);
  const auto quantized = OutlineModel("llama-2-7b:int4");
  ASSERT_TRUE(quantized.ok());
  EXPECT_NEAR(static_cast<double>(quantized->weight_bytes()), 3.58e9, 0.02 * 3.58e9);
  const auto unknown = OutlineModel("llama-9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().param, "model");
  EXPECT_NE(unknown.error().message.find("llama-2-7b, llama-2-13b"), std::string::npos)
      << unknown.error().message;
}

}  // namespace
}  // namespace tandem
