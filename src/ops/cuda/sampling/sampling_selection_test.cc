#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/sampling/sampling_test_bench.h"

namespace tandem {
namespace {

// Places in the order when nearly all logits are equal, or spread over many orders of magnitude.
TEST_F(CudaSamplingTest, SelectsInOddDistributions) {
  for (const int64_t vocab : {700, 20000, 128256}) {
    for (const int kind : {0, 1, 2, 3}) {
      CudaMatrix logits(device(), DType::kF32, 64, vocab);
      std::mt19937 engine(5);
      std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
      std::vector<float> values(static_cast<size_t>(vocab));
      for (float& value : values) {
        const float u = uniform(engine);
        if (kind == 0) value = 1.25F;                                         // all equal
        if (kind == 1) value = u * 1e-6F;                                     // nearly
        if (kind == 2) value = std::copysign(std::exp(40 * std::abs(u)), u);  // wild
        if (kind == 3) value = u > 0.999F ? 3.0F : -30.0F + u * 0.5F;         // a few, then a cloud
      }
      for (int64_t r = 0; r < 64; ++r) {
        for (int64_t c = 0; c < vocab; ++c) logits.At(r, c) = values[static_cast<size_t>(c)];
      }
      std::vector<SampleRow> rows(64);
      for (int64_t r = 0; r < 64; ++r) {
        SampleRow& row = rows[static_cast<size_t>(r)];
        row.logits_row = r;
        row.position = static_cast<uint64_t>(r);
        const bool by_count = r % 2 == 0;
        if (by_count) {
          row.top_k = static_cast<int32_t>(1 + r * (vocab - 2) / 63);
        } else {
          row.top_p = 0.05F + 0.9F * static_cast<float>(r) / 64.0F;
        }
        row.num_top_logprobs = static_cast<int32_t>(r % 5 == 0 ? std::min<int64_t>(vocab, 1000) : -1);
      }
      const std::vector<SampledToken> results = Sample(logits, rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::string where = "vocabulary " + std::to_string(vocab) + " kind " + std::to_string(kind) +
                                  " row " + std::to_string(r);
        ASSERT_GE(results[r].token, 0) << where;
        ASSERT_LT(results[r].token, vocab) << where;
        const std::vector<double> allowed = ReferenceProbabilities(values, rows[r], 1e-5);
        EXPECT_GT(allowed[static_cast<size_t>(results[r].token)], 0)
            << where << " token " << results[r].token;
        if (rows[r].num_top_logprobs < 0) continue;
        SampleRow forced = rows[r];
        forced.forced_token = results[r].token;
        ExpectSameLogprobs(results[r], HostSample(values, forced), where);
      }
    }
  }
}

// Among equal logits top_p keeps the lowest tokens, exactly as many as are needed.
TEST_F(CudaSamplingTest, TopPAmongEqualsKeepsTheLowestTokens) {
  constexpr int64_t kRows = 512;
  for (const int64_t vocab : {64, 20000}) {
    CudaMatrix logits(device(), DType::kF32, kRows, vocab);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < vocab; ++c) logits.At(r, c) = -2.0F;
    }
    std::vector<SampleRow> rows(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      rows[static_cast<size_t>(r)].logits_row = r;
      rows[static_cast<size_t>(r)].position = static_cast<uint64_t>(r);
      rows[static_cast<size_t>(r)].top_p = 0.25F;
    }
    int32_t largest = 0;
    for (const SampledToken& sampled : Sample(logits, rows)) largest = std::max(largest, sampled.token);
    EXPECT_LT(largest, vocab / 4);
    EXPECT_GE(largest, vocab / 4 - 1 - vocab / 64);
  }
}

TEST_F(CudaSamplingTest, BannedTokensAreNeverDrawnUnlessAllAre) {
  for (const int64_t vocab : {4, 9000}) {
    CudaMatrix logits = RandomLogits(40, vocab);
    for (int64_t r = 0; r < 40; ++r) {
      logits.At(r, 0) = 21.0F;
      logits.At(r, 1) = 23.0F;
      logits.At(r, 2) = 22.0F;
      logits.At(r, 3) = 22.5F;
    }
    std::vector<int32_t> everything(static_cast<size_t>(vocab));
    std::iota(everything.begin(), everything.end(), 0);
    const std::vector<int32_t> some = {1, 3};
    std::vector<SampleRow> rows(40);
    for (int64_t r = 0; r < 40; ++r) {
      SampleRow& row = rows[static_cast<size_t>(r)];
      row.logits_row = r;
      row.position = static_cast<uint64_t>(r);
      row.temperature = r % 4 < 2 ? 0.0F : 1.0F;
      row.banned_tokens = r % 2 == 0 ? some : everything;
      row.num_top_logprobs = 2;
    }
    const std::vector<SampledToken> results = Sample(logits, rows);
    for (size_t r = 0; r < 40; ++r) {
      const int32_t token = results[r].token;
      if (r % 4 == 0) {
        EXPECT_EQ(token, 2) << r;
      } else if (r % 4 == 1) {
        EXPECT_EQ(token, 1) << r;
      } else if (r % 4 == 2) {
        EXPECT_TRUE(token != 1 && token != 3) << r << " token " << token;
      }
      EXPECT_TRUE(token >= 0 && token < vocab) << r << " token " << token;
      // Log-probabilities are those of the logits before bans.
      ASSERT_EQ(results[r].top_logprobs.size(), 2U);
      EXPECT_EQ(results[r].top_logprobs[0].token, 1);
      EXPECT_EQ(results[r].top_logprobs[1].token, 3);
    }
  }
}

TEST_F(CudaSamplingTest, OddLogitsGiveWhatTheHostGives) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t vocab : {100, 10000}) {
    std::vector<float> some = RowValues(RandomLogits(1, vocab), 0);
    some[3] = nan;
    some[40] = -kInfinity;
    std::vector<float> positive = some;
    positive[70] = kInfinity;
    std::vector<float> late(static_cast<size_t>(vocab), nan);
    late[90] = -kInfinity;
    const auto size = static_cast<size_t>(vocab);
    const std::vector<std::vector<float>> kinds = {std::vector<float>(size, nan),
                                                   std::vector<float>(size, -kInfinity),
                                                   std::vector<float>(size, kInfinity),
                                                   std::vector<float>(size, 0.0F),
                                                   some,
                                                   positive,
                                                   late};
    std::vector<SampleRow> params = {SampleRow{.temperature = 0.0F},
                                     SampleRow{},
                                     SampleRow{.top_p = 0.5F},
                                     SampleRow{.top_k = 5},
                                     SampleRow{.min_p = 0.5F},
                                     SampleRow{.top_p = 0.0F},
                                     SampleRow{.top_p = 0.3F, .top_k = 100, .min_p = 1.0F}};
    for (const bool logprobs : {false, true}) {
      CudaMatrix logits(device(), DType::kF32, std::ssize(kinds) * std::ssize(params), vocab);
      std::vector<SampleRow> rows;
      for (const std::vector<float>& kind : kinds) {
        for (SampleRow row : params) {
          row.logits_row = std::ssize(rows);
          if (logprobs) row.num_top_logprobs = 3;
          for (int64_t c = 0; c < vocab; ++c) logits.At(row.logits_row, c) = kind[static_cast<size_t>(c)];
          rows.push_back(row);
        }
      }
      const std::vector<SampledToken> results = Sample(logits, rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::string where = "vocabulary " + std::to_string(vocab) + ", logits " +
                                  std::to_string(i / params.size()) + ", params " +
                                  std::to_string(i % params.size());
        const std::vector<float>& values = kinds[i / params.size()];
        ASSERT_GE(results[i].token, 0) << where;
        ASSERT_LT(results[i].token, vocab) << where;
        const SampledToken want = HostSample(values, rows[i]);
        const bool same_order = rows[i].top_p == 1.0F || rows[i].top_p == 0.0F;
        if (same_order && i / params.size() != 3) {
          EXPECT_EQ(results[i].token, want.token) << where;
        }
        if (!logprobs) continue;
        SampleRow forced = rows[i];
        forced.forced_token = results[i].token;
        ExpectSameLogprobs(results[i], HostSample(values, forced), where);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
