#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/token_mask.h"
#include "ops/host/op_test_bench.h"
#include "ops/host/sampling/token_sampler.h"

namespace tandem {
namespace {

class SamplingTest : public testing::TestWithParam<CpuIsa> {
 protected:
  SampledToken Sample(const std::vector<float>& logits, const SampleRow& row) const {
    return SampleToken(logits, row, RowKernelsFor(GetParam()));
  }
};

std::vector<float> RandomLogits(size_t vocab, uint32_t seed, float scale = 2.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Probabilities after temperature, min_p, top_k and top_p by the definitions, with full sorting.
std::vector<double> ReferenceProbabilities(const std::vector<float>& logits, const SampleRow& row) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = std::exp((logits[i] - max) / row.temperature);
  for (double& weight : weights) {
    if (weight < row.min_p) weight = 0;
  }
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < logits.size()) {
    const float kth = logits[order[static_cast<size_t>(row.top_k) - 1]];
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] < kth) weights[i] = 0;
    }
  }
  if (row.top_p < 1.0F) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double mass = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && mass >= row.top_p * total) weights[order[i]] = 0;
      mass += weights[order[i]];
    }
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

TEST_P(SamplingTest, DrawsFollowTheDistribution) {
  SampleRow plain;
  SampleRow warm;
  warm.temperature = 1.7F;
  SampleRow top_k = warm;
  top_k.top_k = 7;
  SampleRow top_p = warm;
  top_p.top_p = 0.8F;
  SampleRow min_p = warm;
  min_p.min_p = 0.1F;
  SampleRow all = warm;
  all.top_k = 20;
  all.top_p = 0.9F;
  all.min_p = 0.02F;
  for (const size_t vocab : {size_t{30}, size_t{700}}) {
    const std::vector<float> logits = RandomLogits(vocab, 31);
    for (SampleRow row : {plain, warm, top_k, top_p, min_p, all}) {
      const std::vector<double> expected = ReferenceProbabilities(logits, row);
      constexpr int kDraws = 20000;
      std::vector<int> counts(vocab);
      row.seed = 77;
      for (int i = 0; i < kDraws; ++i) {
        row.position = static_cast<uint64_t>(i);
        const SampledToken sampled = Sample(logits, row);
        ASSERT_GE(sampled.token, 0);
        ASSERT_LT(sampled.token, static_cast<int32_t>(vocab));
        ++counts[static_cast<size_t>(sampled.token)];
      }
      double chi_square = 0;
      double rare_expected = 0;
      double rare_count = 0;
      int bins = 0;
      for (size_t i = 0; i < vocab; ++i) {
        if (expected[i] == 0) {
          ASSERT_EQ(counts[i], 0) << "token " << i << " was excluded";
        } else if (expected[i] * kDraws < 8) {
          rare_expected += expected[i] * kDraws;
          rare_count += counts[i];
        } else {
          const double difference = counts[i] - expected[i] * kDraws;
          chi_square += difference * difference / (expected[i] * kDraws);
          ++bins;
        }
      }
      if (rare_expected >= 8) {
        chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
        ++bins;
      }
      // Mean bins - 1, variance 2 (bins - 1): five standard deviations.
      const double freedom = std::max(1, bins - 1);
      EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5)
          << "vocab " << vocab << " top_k " << row.top_k << " top_p " << row.top_p << " min_p " << row.min_p;
    }
  }
}

TEST_P(SamplingTest, DrawIsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits = RandomLogits(1000, 32);
  SampleRow row;
  row.seed = 5;
  row.position = 9;
  const int32_t token = Sample(logits, row).token;
  EXPECT_EQ(Sample(logits, row).token, token);
  std::map<int32_t, int> tokens;
  for (uint64_t i = 0; i < 50; ++i) {
    row.position = i;
    ++tokens[Sample(logits, row).token];
  }
  EXPECT_GT(tokens.size(), 5U);
}

TEST(UniformDrawTest, IsUniformAlongSeedsAndPositions) {
  for (const bool along_seeds : {false, true}) {
    std::vector<int> bins(64);
    constexpr int kDraws = 64 * 1000;
    double previous = 0;
    double correlation = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto n = static_cast<uint64_t>(i);
      const double u = along_seeds ? UniformDraw(n, 3) : UniformDraw(3, n);
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++bins[static_cast<size_t>(u * 64)];
      correlation += (u - 0.5) * (previous - 0.5);
      previous = u;
    }
    double chi_square = 0;
    for (const int bin : bins) chi_square += (bin - 1000.0) * (bin - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 63 + 5 * std::sqrt(126.0));
    EXPECT_LT(std::abs(correlation) / kDraws * 12, 0.02);
  }
}

TEST_P(SamplingTest, GreedyTakesTheLowestOfEquals) {
  std::vector<float> logits = RandomLogits(1003, 33);
  logits[701] = 50.0F;
  logits[502] = 50.0F;
  logits[1002] = 50.0F;
  SampleRow row;
  row.temperature = 0.0F;
  EXPECT_EQ(Sample(logits, row).token, 502);
  logits[1002] = 51.0F;
  EXPECT_EQ(Sample(logits, row).token, 1002);
  row.temperature = 1e-4F;  // tiny, but a draw: only the best has weight
  EXPECT_EQ(Sample(logits, row).token, 1002);
  row.temperature = 1e-30F;
  EXPECT_EQ(Sample(logits, row).token, 1002);
}

TEST_P(SamplingTest, PenaltiesMatchReference) {
  const std::vector<float> logits = RandomLogits(300, 34);
  const std::vector<int32_t> prompt = {5, 6, 7, 7, 299};
  const std::vector<int32_t> output = {7, 8, 8, 8, 9};
  std::mt19937 random(35);
  std::uniform_real_distribution<float> penalty(-1.5F, 1.5F);
  for (int i = 0; i < 50; ++i) {
    SampleRow row;
    row.temperature = 0.0F;
    row.repetition_penalty = 1.0F + std::abs(penalty(random));
    row.presence_penalty = i % 3 == 0 ? 0.0F : penalty(random);
    row.frequency_penalty = i % 4 == 0 ? 0.0F : penalty(random);
    row.prompt_tokens = prompt;
    row.output_tokens = output;
    const std::vector<std::pair<int32_t, float>> bias = {{8, 4.0F}, {5, 6.0F}, {100, 3.0F + penalty(random)}};
    row.logit_bias = bias;
    std::vector<float> expected = logits;
    for (const auto& [token, value] : bias) expected[static_cast<size_t>(token)] += value;
    for (int32_t token = 0; token < 300; ++token) {
      float& logit = expected[static_cast<size_t>(token)];
      const auto count = std::count(output.begin(), output.end(), token);
      if (count > 0 || std::count(prompt.begin(), prompt.end(), token) > 0) {
        logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
      }
      logit -= row.frequency_penalty * static_cast<float>(count);
      if (count > 0) logit -= row.presence_penalty;
    }
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    ASSERT_EQ(Sample(logits, row).token, best) << i;
  }
}

TEST_P(SamplingTest, BannedTokensAreNeverDrawnUnlessAllAre) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 2.5F};
  const std::vector<int32_t> banned = {1, 3};
  SampleRow row;
  row.banned_tokens = banned;
  for (uint64_t i = 0; i < 200; ++i) {
    row.position = i;
    const int32_t token = Sample(logits, row).token;
    EXPECT_TRUE(token == 0 || token == 2);
  }
  row.temperature = 0.0F;
  EXPECT_EQ(Sample(logits, row).token, 2);
  const std::vector<int32_t> everything = {0, 1, 2, 3};
  row.banned_tokens = everything;
  EXPECT_EQ(Sample(logits, row).token, 1);
  row.temperature = 1.0F;
  const int32_t token = Sample(logits, row).token;
  EXPECT_TRUE(token >= 0 && token < 4);
}

TEST_P(SamplingTest, OnlyAllowedTokensAreDrawn) {
  const std::vector<float> logits = RandomLogits(1003, 34);
  const std::vector<int32_t> allowed = {3, 31, 32, 500, 1002};
  const TokenMask mask = MakeTokenMask(allowed, 1003);
  std::vector<float> rest = logits;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (std::find(allowed.begin(), allowed.end(), static_cast<int32_t>(i)) == allowed.end()) rest[i] = -1e30F;
  }
  for (SampleRow row : {SampleRow{}, SampleRow{.temperature = 0.0F}, SampleRow{.top_p = 0.7F},
                        SampleRow{.top_k = 2}, SampleRow{.min_p = 0.3F}}) {
    row.num_top_logprobs = 3;
    for (uint64_t i = 0; i < 100; ++i) {
      row.position = i;
      row.allowed_tokens = {};
      const SampledToken same = Sample(rest, row);
      row.allowed_tokens = mask;
      const SampledToken sampled = Sample(logits, row);
      EXPECT_TRUE(std::find(allowed.begin(), allowed.end(), sampled.token) != allowed.end());
      if (row.top_p == 1.0F) {
        EXPECT_EQ(sampled.token, same.token);
      }
      row.allowed_tokens = {};
      row.forced_token = sampled.token;
      const SampledToken raw = Sample(logits, row);
      row.forced_token = -1;
      EXPECT_EQ(sampled.logprob, raw.logprob) << "log-probabilities are those of all tokens";
      EXPECT_EQ(sampled.rank, raw.rank);
      EXPECT_EQ(sampled.top_logprobs[0].token, raw.top_logprobs[0].token);
    }
  }
}

TEST_P(SamplingTest, WhereAllAllowedTokensAreBannedAnAllowedOneIsDrawn) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 2.5F};
  const std::vector<int32_t> banned = {0, 2};
  const TokenMask mask = MakeTokenMask(banned, 4);
  SampleRow row{.temperature = 0.0F};
  row.banned_tokens = banned;
  row.allowed_tokens = mask;
  EXPECT_EQ(Sample(logits, row).token, 2);
  const TokenMask none(1);
  row.allowed_tokens = none;
  EXPECT_EQ(Sample(logits, row).token, 1);
  const std::vector<std::pair<int32_t, float>> bias = {{0, 5.0F}};
  row.banned_tokens = {};
  row.logit_bias = bias;
  row.allowed_tokens = mask;
  EXPECT_EQ(Sample(logits, row).token, 0);
}

TEST_P(SamplingTest, OddLogitsStillGiveAValidId) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> some = RandomLogits(100, 36);
  some[3] = nan;
  some[40] = -infinity;
  std::vector<float> positive = some;
  positive[70] = infinity;
  for (const std::vector<float>& logits :
       {std::vector<float>(100, nan), std::vector<float>(100, -infinity), std::vector<float>(100, infinity),
        std::vector<float>(100, 0.0F), some, positive}) {
    for (SampleRow row : {SampleRow{.temperature = 0.0F}, SampleRow{}, SampleRow{.top_p = 0.5F},
                          SampleRow{.top_k = 5}, SampleRow{.min_p = 0.5F}, SampleRow{.top_p = 0.0F},
                          SampleRow{.top_p = 0.3F, .top_k = 100, .min_p = 1.0F}}) {
      row.num_top_logprobs = 3;
      const SampledToken sampled = Sample(logits, row);
      EXPECT_GE(sampled.token, 0);
      EXPECT_LT(sampled.token, 100);
      EXPECT_TRUE(std::isfinite(sampled.logprob));
      for (const TokenLogprob& top : sampled.top_logprobs) EXPECT_TRUE(std::isfinite(top.logprob));
    }
  }
  EXPECT_EQ(Sample(positive, SampleRow{}).token, 70);
  EXPECT_NE(Sample(some, SampleRow{.temperature = 0.0F}).token, 3);
}

TEST_P(SamplingTest, LogprobsMatchReference) {
  std::vector<float> logits = RandomLogits(2000, 37);
  logits[10] = logits[1500] = 20.0F;  // equals at the top
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - 20.0);
  const double log_sum = 20.0 + std::log(sum);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (const int32_t num_top : {0, 1, 5, 20, 100}) {
    SampleRow row;
    row.forced_token = order[42];
    row.num_top_logprobs = num_top;
    const SampledToken sampled = Sample(logits, row);
    EXPECT_EQ(sampled.token, order[42]);
    EXPECT_EQ(sampled.rank, 43);
    EXPECT_NEAR(sampled.logprob, logits[static_cast<size_t>(order[42])] - log_sum, 1e-5);
    ASSERT_EQ(sampled.top_logprobs.size(), static_cast<size_t>(num_top));
    for (size_t i = 0; i < sampled.top_logprobs.size(); ++i) {
      EXPECT_EQ(sampled.top_logprobs[i].token, order[i]);
      EXPECT_NEAR(sampled.top_logprobs[i].logprob, logits[static_cast<size_t>(order[i])] - log_sum, 1e-5);
    }
  }
  SampleRow silent;
  silent.temperature = 0.0F;
  EXPECT_TRUE(Sample(logits, silent).top_logprobs.empty());
}

TEST_P(SamplingTest, OpSamplesEveryRow) {
  OpTestBench bench(GetParam());
  std::mt19937 random(38);
  TestMatrix logits(DType::kF32, 6, 500, 4);
  logits.Fill(random, 3.0F);
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < 9; ++i) {
    SampleRow row;
    row.logits_row = i * 5 % 6;
    row.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    row.position = static_cast<uint64_t>(i);
    row.num_top_logprobs = static_cast<int32_t>(i % 3) - 1;
    rows.push_back(row);
  }
  std::vector<SampledToken> results(rows.size());
  bench.ops().Sample(bench.stream(), {logits.view(), rows, results});
  bench.Synchronize();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> values;
    for (int64_t c = 0; c < 500; ++c) values.push_back(logits.Get(rows[i].logits_row, c));
    EXPECT_EQ(results[i].token, Sample(values, rows[i]).token) << i;
    EXPECT_EQ(std::ssize(results[i].top_logprobs), std::max(0, rows[i].num_top_logprobs));
  }
}

// As an iteration does that is enqueued behind the one that draws.
TEST_P(SamplingTest, DrawnTokensAreThereForOpsBehind) {
  OpTestBench bench(GetParam());
  std::mt19937 random(39);
  TestMatrix logits(DType::kF32, 4, 500, 0);
  logits.Fill(random, 3.0F);
  std::vector<SampleRow> rows(4);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits_row = 3 - static_cast<int64_t>(i);
    rows[i].temperature = i % 2 == 0 ? 0.0F : 1.0F;
  }
  std::vector<SampledToken> results(rows.size());
  std::vector<int32_t> drawn(rows.size(), -1);
  std::vector<int32_t> tokens = {17, ~2, ~0, 0, ~3, ~2};
  bench.ops().Sample(bench.stream(), {logits.view(), rows, results, drawn.data()});
  bench.ops().PutDrawnTokens(bench.stream(),
                             {.token_ids = tokens.data(), .num_rows = 5, .drawn = drawn.data()});
  bench.Synchronize();
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(drawn[i], results[i].token);
  EXPECT_EQ(tokens, (std::vector<int32_t>{17, results[2].token, results[0].token, 0, results[3].token, ~2}));
}

INSTANTIATE_TEST_SUITE_P(Isas, SamplingTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

}  // namespace
}  // namespace tandem
