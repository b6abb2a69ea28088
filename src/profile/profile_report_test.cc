#include "profile/profile_report.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 1000;
  config.intermediate_size = 2000;
  config.num_heads = 10;
  config.num_kv_heads = 5;
  config.head_dim = 100;
  return config;
}

// 1000 * (2 * 1000 + 2 * 500 + 3 * 2000) = 9e6 weights a layer, as codes of 4 bits in groups of 32.
constexpr double kLayerWeightBytes = 9e6 * 4.5 / 8;

// A gpu tier of bf16 and a cpu tier of half of it.
constexpr KvTokenBytes kKvTokenBytes = {.gpu = 2000, .cpu = 1000};

TEST(ProfileReport, Figures) {
  const CostMeasurements measurements = {.num_layers = 2,
                                         .linear = {{1, 18}, {100, 36}},
                                         .gpu_decode_attention = {{1, {{100, 4}}}, {4, {{400, 8}}}},
                                         .prefill_attention = {{16, {{16, 5}}}},
                                         .outside_layers = {{0, 100}},
                                         .cpu_attention = {{1, {{100, 10}, {1000, 50}}}},
                                         .exchange = {{1, 10}},
                                         .swap = {{32, 8}}};
  const ProfileFigures figures = FiguresOf(measurements, SmallConfig(), kLayerWeightBytes, kKvTokenBytes);
  EXPECT_DOUBLE_EQ(figures.linear_one_row_us, 18);
  EXPECT_DOUBLE_EQ(figures.weights_gb_per_s, 281.25);
  EXPECT_DOUBLE_EQ(figures.linear_tflop_per_s, 50);
  EXPECT_DOUBLE_EQ(figures.gpu_attention_gb_per_s, 100);
  EXPECT_DOUBLE_EQ(figures.cpu_attention_gb_per_s, 20);
  EXPECT_DOUBLE_EQ(figures.swap_gb_per_s, 4);
  const std::string text = FormatProfile(measurements, SmallConfig(), kLayerWeightBytes, kKvTokenBytes);
  EXPECT_NE(text.find("one row 18.0 us a layer (281 GB/s of weights), at most 50.00 TFLOP/s\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cpu attention 20.0 GB/s, swaps 4.0 GB/s\n"), std::string::npos) << text;
}

TEST(ProfileReport, SumsOfShards) {
  const CostMeasurements measurements = {.num_layers = 2,
                                         .linear = {{1, 18}},
                                         .gpu_decode_attention = {{1, {{100, 4}}}},
                                         .prefill_attention = {{16, {{16, 5}}}},
                                         .outside_layers = {{0, 100}},
                                         .all_reduce = {{1, 4}, {511, 24}}};
  const std::string text = FormatProfile(measurements, SmallConfig(), kLayerWeightBytes, kKvTokenBytes);
  EXPECT_NE(
      text.find("sum over the shards, two a layer\n        rows           us\n           1          4.0\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(DescribeSums(measurements), "a sum over them takes 4 us for 1 row, 14 us for 256 rows");
}

TEST(ProfileReport, SaysNothingOfACpuTierThatIsNotThere) {
  const CostMeasurements measurements = {.num_layers = 2,
                                         .linear = {{1, 18}},
                                         .gpu_decode_attention = {{1, {{100, 4}}}},
                                         .prefill_attention = {{16, {{16, 5}}}},
                                         .outside_layers = {{0, 100}}};
  const std::string text = FormatProfile(measurements, SmallConfig(), kLayerWeightBytes, kKvTokenBytes);
  EXPECT_EQ(text.find("cpu"), std::string::npos) << text;
  EXPECT_EQ(text.find("swap"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem
