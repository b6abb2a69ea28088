// What the tests of sampling on a GPU share: requests of all kinds, random logits, the definitions of what
// may be sampled, the host's sampler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/token_mask.h"
#include "ops/cuda/cuda_op_test_bench.h"
#include "ops/host/sampling/token_sampler.h"

namespace tandem {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row and what its spans point to.
struct OwnedRow {
  SampleRow row;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  std::vector<int32_t> banned;
  std::vector<std::pair<int32_t, float>> bias;
  TokenMask allowed;

  SampleRow Get() const {
    SampleRow result = row;
    result.prompt_tokens = prompt;
    result.output_tokens = output;
    result.banned_tokens = banned;
    result.logit_bias = bias;
    result.allowed_tokens = allowed;
    return result;
  }
};

inline std::vector<SampleRow> RowsOf(const std::vector<OwnedRow>& owned) {
  std::vector<SampleRow> rows;
  rows.reserve(owned.size());
  for (const OwnedRow& row : owned) rows.push_back(row.Get());
  return rows;
}

inline std::vector<float> RowValues(const CudaMatrix& logits, int64_t row) {
  return {logits.Row(row), logits.Row(row) + logits.cols()};
}

// The logits after the mask, bias, bans and penalties, by the definitions.
inline std::vector<float> Changed(std::vector<float> logits, const SampleRow& row) {
  std::map<int32_t, int> times;
  std::map<int32_t, bool> seen;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!row.allowed_tokens.empty() && !IsInMask(row.allowed_tokens, i)) logits[i] = -kInfinity;
  }
  for (const auto& [token, bias] : row.logit_bias) logits[static_cast<size_t>(token)] += bias;
  for (const int32_t token : row.banned_tokens) logits[static_cast<size_t>(token)] = -kInfinity;
  for (const int32_t token : row.output_tokens) ++times[token];
  for (const auto& [token, count] : times) seen[token] = true;
  for (const int32_t token : row.prompt_tokens) seen[token] = true;
  for (const auto& [token, unused] : seen) {
    float& logit = logits[static_cast<size_t>(token)];
    const bool penalized = times.count(token) > 0 || row.repetition_penalty != 1.0F;
    if (penalized) logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (times.count(token) == 0) continue;
    logit -= row.frequency_penalty * static_cast<float>(times[token]);
    logit -= row.presence_penalty;
  }
  return logits;
}

// Probabilities after temperature, min_p, top_k and top_p by the definitions, with full sorting. slack is
// added to top_p.
inline std::vector<double> ReferenceProbabilities(const std::vector<float>& logits, const SampleRow& row,
                                                  double slack = 0) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = std::exp((logits[i] - max) / row.temperature);
  for (double& weight : weights) {
    if (weight < row.min_p * (1 - slack)) weight = 0;
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
      const bool needed = i == 0 || mass < (row.top_p + slack) * total;
      mass += weights[order[i]];
      if (!needed) weights[order[i]] = 0;
    }
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

class CudaSamplingTest : public CudaOpTest {
 protected:
  // Enqueues a call; logits are made afresh.
  std::vector<SampledToken> Sample(CudaMatrix& logits, const std::vector<SampleRow>& rows) {
    logits.Upload();
    std::vector<SampledToken> results(rows.size());
    ops().Sample(stream(), {logits.view(), rows, results});
    stream().Synchronize();
    return results;
  }

  static SampledToken HostSample(const std::vector<float>& logits, const SampleRow& row) {
    return SampleToken(logits, row, RowKernelsFor(BestCpuIsa()));
  }

  // Random logits, a few tokens likely. With ties: multiples of 1/4.
  CudaMatrix RandomLogits(int64_t rows, int64_t vocab, bool ties = false, int64_t gap = 0) {
    CudaMatrix logits(device(), DType::kF32, rows, vocab, gap);
    std::minstd_rand fast(7);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < vocab; ++c) {
        float sum = 0;  // near enough to normal, and fast
        for (int i = 0; i < 4; ++i) sum += static_cast<float>(fast() % 65536) / 65536.0F - 0.5F;
        logits.At(r, c) = ties ? std::round(sum * 20.0F) / 4.0F : sum * 5.0F;
      }
    }
    return logits;
  }

  static void ExpectSameLogprobs(const SampledToken& got, const SampledToken& want,
                                 const std::string& where) {
    EXPECT_EQ(got.rank, want.rank) << where;
    EXPECT_NEAR(got.logprob, want.logprob, 2e-5 * (1 + std::abs(want.logprob))) << where;
    ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size()) << where;
    for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
      EXPECT_EQ(got.top_logprobs[i].token, want.top_logprobs[i].token) << where << ", top " << i;
      EXPECT_NEAR(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob,
                  2e-5 * (1 + std::abs(want.top_logprobs[i].logprob)))
          << where << ", top " << i;
    }
  }

  // All kinds of requests in turn.
  OwnedRow AnyRow(int64_t i, int64_t vocab) {
    OwnedRow owned;
    SampleRow& row = owned.row;
    row.logits_row = i;
    row.seed = 1000 + static_cast<uint64_t>(i) * 7;
    row.position = static_cast<uint64_t>(i);
    std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab) - 1);
    const auto fill_lists = [&] {
      row.repetition_penalty = 1.3F;
      row.frequency_penalty = 0.2F;
      row.presence_penalty = -0.1F;
      for (int n = 0; n < 700; ++n) owned.prompt.push_back(token(random()));
      for (int n = 0; n < 300; ++n) owned.output.push_back(token(random()) % 90);
    };
    const auto fill_bias = [&] {
      for (int n = 0; n < 20; ++n) {
        const int32_t t = static_cast<int32_t>(n * 5 % vocab);
        if (n * 5 < vocab) owned.bias.emplace_back(t, n % 2 == 0 ? 2.5F : -3.0F);
        owned.banned.push_back(token(random()));
      }
      owned.banned.push_back(owned.banned[0]);
    };
    switch (i % 10) {
      case 0:
        row.temperature = 0.0F;
        break;
      case 1:
        row.temperature = 0.0F;
        row.num_top_logprobs = 5;
        fill_lists();
        break;
      case 2:
        row.temperature = 0.0F;
        fill_bias();
        break;
      case 3:
        row.temperature = 0.7F;
        break;
      case 4:
        row.top_k = static_cast<int32_t>(1 + i % 60);
        break;
      case 5:
        row.min_p = 0.05F;
        row.num_top_logprobs = 0;
        break;
      case 6:
        row.top_p = 0.9F;
        row.temperature = 1.2F;
        break;
      case 7:
        row.top_p = 0.8F;
        row.top_k = 40;
        row.min_p = 0.01F;
        row.num_top_logprobs = 20;
        fill_lists();
        fill_bias();
        break;
      case 8:
        row.forced_token = token(random());
        row.num_top_logprobs = 3;
        fill_bias();
        break;
      default:
        row.temperature = 1.5F;
        row.num_top_logprobs = 1;
        fill_lists();
        break;
    }
    // Of every ten rows the second half of the time, so that each kind comes with a mask and without.
    if (i % 20 >= 10) {
      owned.allowed.resize(NumMaskWords(vocab));
      for (uint32_t& word : owned.allowed) word = static_cast<uint32_t>(random()() & random()());
      owned.allowed[0] |= 1U;
    }
    return owned;
  }

  // Token, log-probabilities and ranks against the host's sampler; with top_p, which the host's walks through
  // in another order, that the token is an allowed one.
  void CompareWithHost(CudaMatrix& logits, const std::vector<OwnedRow>& owned) {
    const std::vector<SampleRow> rows = RowsOf(owned);
    const std::vector<SampledToken> results = Sample(logits, rows);
    int64_t draws = 0;
    int64_t other_draws = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampleRow& row = rows[i];
      const std::string where = "row " + std::to_string(i) + " of " + std::to_string(rows.size()) +
                                ", vocabulary " + std::to_string(logits.cols());
      const std::vector<float> values = RowValues(logits, row.logits_row);
      SampledToken want = HostSample(values, row);
      const bool is_draw = row.temperature > 0 && row.forced_token < 0;
      if (is_draw && row.top_p < 1.0F) {
        ASSERT_GE(results[i].token, 0) << where;
        ASSERT_LT(results[i].token, logits.cols()) << where;
        EXPECT_GT(
            ReferenceProbabilities(Changed(values, row), row, 1e-5)[static_cast<size_t>(results[i].token)], 0)
            << where << ": token " << results[i].token << " is not among the allowed";
      } else if (is_draw) {
        ++draws;
        other_draws += results[i].token == want.token ? 0 : 1;
      } else {
        EXPECT_EQ(results[i].token, want.token) << where;
      }
      if (row.num_top_logprobs < 0) continue;
      if (results[i].token != want.token) {
        SampleRow forced = row;
        forced.forced_token = results[i].token;
        want = HostSample(values, forced);
      }
      ExpectSameLogprobs(results[i], want, where);
    }
    // Where rounding decides between two neighbours.
    EXPECT_LE(other_draws, 1 + draws / 50) << "of " << draws << " draws, vocabulary " << logits.cols();
  }
};

}  // namespace tandem
