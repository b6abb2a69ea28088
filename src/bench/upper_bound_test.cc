#include "bench/upper_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "perf/cost_table.h"

namespace tandem {
namespace {

// Straight lines: rates instead of measured points.
struct Rates {
  int64_t num_layers = 4;
  double weights_us = 0;  // linear operations take this long at least
  double linear_us_per_token = 0;
  double gpu_us_per_kv_token = 0;
  double cpu_us_per_kv_token = 0;
  double prefill_us_per_pair = 0;  // a query token with a key token before it
  double outside_us = 0;
};

class StraightCosts : public LayerCosts {
 public:
  explicit StraightCosts(const Rates& rates) : rates_(rates) {}

  int64_t num_layers() const override { return rates_.num_layers; }
  double LinearUs(int64_t num_tokens) const override {
    return num_tokens == 0
               ? 0
               : std::max(rates_.weights_us, rates_.linear_us_per_token * static_cast<double>(num_tokens));
  }
  double GpuDecodeAttentionUs(int64_t /*num_rows*/, int64_t kv_tokens) const override {
    return rates_.gpu_us_per_kv_token * static_cast<double>(kv_tokens);
  }
  double PrefillAttentionUs(int64_t num_tokens, int64_t context_len) const override {
    const auto n = static_cast<double>(num_tokens);
    return rates_.prefill_us_per_pair * n * (static_cast<double>(context_len) - n / 2);
  }
  double CpuAttentionUs(int64_t /*num_rows*/, int64_t kv_tokens) const override {
    return rates_.cpu_us_per_kv_token * static_cast<double>(kv_tokens);
  }
  double ExchangeUs(int64_t /*num_rows*/) const override { return 1e9; }
  double SwapUs(int64_t /*num_tokens*/) const override { return 1e9; }
  double OutsideLayersUs(int64_t num_sampled) const override {
    return num_sampled == 0 ? 0 : rates_.outside_us;
  }
  const RowTiles& row_tiles() const override { return tiles_; }

 private:
  const Rates rates_;
  const RowTiles tiles_ = RowTiles();
};

std::vector<WorkloadRequest> Requests(int64_t prompt_tokens, int64_t output_tokens) {
  return {{.prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .arrival_s = {}}};
}

TEST(UpperBound, WhereWeightsAreTheWorkTheCpuAddsWhatItReadsMeanwhile) {
  // Any number of rows takes the weights' time. Context 100 + 200 / 2 = 200; the gpu tier holds 10 rows.
  const StraightCosts costs(
      {.weights_us = 500, .gpu_us_per_kv_token = 0.25, .cpu_us_per_kv_token = 1, .outside_us = 400});
  const ThroughputBound bound =
      BoundThroughput(costs, Requests(100, 200), {.gpu_tier_tokens = 2000, .cpu_tier_tokens = 1'000'000});
  const double gpu_us = 4 * (500 + 2000 * 0.25) + 400;
  EXPECT_NEAR(bound.ideal_gpu_only, 10 / gpu_us * 1e6, 1e-6);
  // The gain is what the CPU reads in that time over what the gpu tier holds: 1100 of 2000 tokens.
  EXPECT_NEAR(bound.upper_bound / bound.ideal_gpu_only, 1 + gpu_us / (4 * 1.0) / 2000, 1e-6);
}

TEST(UpperBound, ASmallCpuTierLimitsIt) {
  const StraightCosts costs({.weights_us = 500, .gpu_us_per_kv_token = 0.25, .cpu_us_per_kv_token = 0.1});
  const auto bound = [&](int64_t cpu_tier_tokens) {
    return BoundThroughput(costs, Requests(100, 200),
                           {.gpu_tier_tokens = 2000, .cpu_tier_tokens = cpu_tier_tokens});
  };
  EXPECT_DOUBLE_EQ(bound(0).upper_bound, bound(0).ideal_gpu_only);
  EXPECT_NEAR(bound(500).upper_bound / bound(500).ideal_gpu_only, 1.25, 1e-9);
}

TEST(UpperBound, WhereArithmeticIsTheWorkTheCpuOnlySavesGpuAttention) {
  // A decoded token costs the GPU 4 * (1 + 5) * 10 us of products, whoever attends.
  const StraightCosts costs(
      {.linear_us_per_token = 10, .gpu_us_per_kv_token = 0, .cpu_us_per_kv_token = 0.01});
  const ThroughputBound bound =
      BoundThroughput(costs, Requests(500, 100), {.gpu_tier_tokens = 55'000, .cpu_tier_tokens = 1'000'000});
  EXPECT_NEAR(bound.ideal_gpu_only, 1e6 / 240, 1e-6);
  EXPECT_NEAR(bound.upper_bound, 1e6 / 240, 1e-6);
}

TEST(UpperBound, PromptsAttendOnceForAllTheirOutput) {
  // One row; a prompt of 300 tokens has 45,000 pairs, for 150 output tokens 300 us each; in two chunks the
  // same.
  const StraightCosts costs({.num_layers = 2, .weights_us = 100, .prefill_us_per_pair = 1});
  for (const int64_t chunk : {int64_t{0}, int64_t{150}, int64_t{200}}) {
    const ThroughputBound bound =
        BoundThroughput(costs, Requests(300, 150), {.gpu_tier_tokens = 375, .max_chunk_tokens = chunk});
    EXPECT_NEAR(bound.ideal_gpu_only, 1e6 / (2 * (100 + 300)), 1e-6) << chunk;
  }
}

TEST(UpperBound, ContextsCountByTheTokensDecodedInThem) {
  // One request decodes 10 tokens at about 15, the other 90 at about 55: a mean of 51, not of 35.
  const StraightCosts costs({.num_layers = 1, .weights_us = 1});
  const std::vector<WorkloadRequest> requests = {{.prompt_tokens = 10, .output_tokens = 10, .arrival_s = {}},
                                                 {.prompt_tokens = 10, .output_tokens = 90, .arrival_s = {}}};
  EXPECT_NEAR(BoundThroughput(costs, requests, {.gpu_tier_tokens = 510}).ideal_gpu_only, 10e6, 1e-3);
}

TEST(UpperBound, WhatWasComputedBeforeIsNoWork) {
  // A decoded token brings 1 prompt token of 5 along, and a row needs room for 150 of 550 tokens.
  const StraightCosts costs({.linear_us_per_token = 10, .prefill_us_per_pair = 1, .outside_us = 0});
  std::vector<WorkloadRequest> requests = Requests(500, 100);
  const BoundLimits limits = {.gpu_tier_tokens = 1500};
  // 500 * 500 / 2 pairs for 100 tokens.
  EXPECT_NEAR(BoundThroughput(costs, requests, limits).upper_bound, 1e6 / (4 * (60 + 1250)), 1e-6);
  requests[0].possible_hit_tokens = 400;
  // 100 query tokens with 450 keys each in the mean.
  EXPECT_NEAR(BoundThroughput(costs, requests, limits).upper_bound, 1e6 / (4 * (20 + 450)), 1e-6);
  // Where the weights are the work, rows count: 1500 / 550, and 1500 / 150 once 400 tokens are shared.
  const StraightCosts weights({.weights_us = 100});
  EXPECT_NEAR(BoundThroughput(weights, requests, limits).ideal_gpu_only, 1500.0 / 550 / 400 * 1e6, 1e-6);
  requests[0].shared_tokens = 400;
  EXPECT_NEAR(BoundThroughput(weights, requests, limits).ideal_gpu_only, 1500.0 / 150 / 400 * 1e6, 1e-6);
}

TEST(UpperBound, AGpuTierOfLessThanARequestHasAShareOfARow) {
  const StraightCosts costs({.num_layers = 1, .weights_us = 100, .cpu_us_per_kv_token = 1});
  const ThroughputBound bound =
      BoundThroughput(costs, Requests(100, 200), {.gpu_tier_tokens = 100, .cpu_tier_tokens = 100'000});
  EXPECT_NEAR(bound.ideal_gpu_only, 0.5 / 100 * 1e6, 1e-6);
  EXPECT_NEAR(bound.upper_bound, (0.5 + 0.5) / 100 * 1e6, 1e-6);
  EXPECT_EQ(BoundThroughput(costs, Requests(100, 200), {}).ideal_gpu_only, 0);
}

// A slice of 8 SMs (1.16 TB/s of weights, 55 TFLOP/s, 600 GB/s of KV) with Llama-2-7B beside 170 GB/s of host
// memory: the gains that the same formulas give without interpolation.
TEST(UpperBound, RooflineOfASliceOfTheGpu) {
  constexpr double kKvBytes = 16384;  // a token and layer
  constexpr double kParameters = 6.61e9 / 32;
  const StraightCosts costs({.num_layers = 32,
                             .weights_us = 2 * kParameters / 1.16e12 * 1e6,
                             .linear_us_per_token = 2 * kParameters / 55e12 * 1e6,
                             .gpu_us_per_kv_token = kKvBytes / 600e9 * 1e6,
                             .cpu_us_per_kv_token = kKvBytes / 170e9 * 1e6,
                             .prefill_us_per_pair = 4 * 4096 / 27.5e12 * 1e6});
  const auto bound = [&](int64_t output_tokens) {
    return BoundThroughput(costs, Requests(372, output_tokens),
                           {.gpu_tier_tokens = 2240, .cpu_tier_tokens = 152'587});
  };
  EXPECT_NEAR(bound(45).ideal_gpu_only, 384.4, 0.1);
  EXPECT_NEAR(bound(100).ideal_gpu_only, 395.4, 0.1);
  EXPECT_NEAR(bound(200).ideal_gpu_only, 354.55, 0.1);
  // With a full gpu tier it would be 1.151: a few rows less save attention where products are the limit.
  EXPECT_NEAR(bound(45).upper_bound / bound(45).ideal_gpu_only, 1.153, 0.001);
  EXPECT_NEAR(bound(100).upper_bound / bound(100).ideal_gpu_only, 2.140, 0.002);
  EXPECT_NEAR(bound(200).upper_bound / bound(200).ideal_gpu_only, 2.933, 0.002);
}

TEST(UpperBound, NeverBelowGpuOnlyAndNeverLessForMoreMemory) {
  const StraightCosts costs({.weights_us = 300,
                             .linear_us_per_token = 4,
                             .gpu_us_per_kv_token = 0.01,
                             .cpu_us_per_kv_token = 0.05,
                             .prefill_us_per_pair = 0.0005,
                             .outside_us = 200});
  for (const int64_t output_tokens : {5, 50, 500}) {
    double last = 0;
    for (const int64_t cpu_tier_tokens : {0, 10, 3000, 40'000, 500'000}) {
      const ThroughputBound bound =
          BoundThroughput(costs, Requests(700, output_tokens),
                          {.gpu_tier_tokens = 20'000, .cpu_tier_tokens = cpu_tier_tokens});
      EXPECT_GE(bound.upper_bound, bound.ideal_gpu_only);
      EXPECT_GE(bound.upper_bound, last * (1 - 1e-9));
      last = bound.upper_bound;
    }
  }
}

// Two shards, each with half of the weights and of all KV heads, and 50 us for a sum.
TEST(UpperBound, ShardsDoWhatOneOfThemTakesWithItsSums) {
  const auto costs_of = [](double share, double sum_us) {
    CostMeasurements measured = {.num_layers = 4,
                                 .linear = {{1, 500 * share}, {1000, 500 * share}},
                                 .gpu_decode_attention = {{1, {{1, 0.25 * share}, {1000, 250 * share}}}},
                                 .prefill_attention = {{1, {{1, 0}, {1000, 0}}}},
                                 .outside_layers = {{0, 400}, {1, 400}},
                                 .cpu_attention = {{1, {{1, share}, {1000, 1000 * share}}}},
                                 .exchange = {{1, 1}},
                                 .swap = {{1, 1}}};
    if (sum_us > 0) measured.all_reduce = {{1, sum_us}, {1000, sum_us}};
    return CostTable::Create(std::move(measured)).value();
  };
  const auto bound = [](const CostTable& costs) {
    return BoundThroughput(costs, Requests(100, 200),
                           {.gpu_tier_tokens = 2000, .cpu_tier_tokens = 1'000'000});
  };
  const double whole_us = 4 * (500 + 500) + 400;
  EXPECT_NEAR(bound(costs_of(1, 0)).ideal_gpu_only, 10 / whole_us * 1e6, 1e-3);
  const double shard_us = 4 * (250 + 2 * 50 + 250) + 400;
  const ThroughputBound of_shards = bound(costs_of(0.5, 50));
  EXPECT_NEAR(of_shards.ideal_gpu_only, 10 / shard_us * 1e6, 1e-3);
  // While the sums go on the CPUs read, each half of every token.
  EXPECT_NEAR(of_shards.upper_bound / of_shards.ideal_gpu_only, 1 + shard_us / (4 * 0.5) / 2000, 1e-3);
}

}  // namespace
}  // namespace tandem
