#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ops/cuda/sampling/sampling_test_bench.h"

namespace tandem {
namespace {

TEST_F(CudaSamplingTest, GreedyTakesTheLowestOfEquals) {
  for (const int64_t vocab : {1, 3, 100, 4097, 49152, 128256}) {
    for (const int64_t num_rows : {1, 3, 300}) {
      if (vocab * num_rows > 15'000'000 && vocab != 128256) continue;
      CudaMatrix logits = RandomLogits(num_rows, vocab, /*ties=*/true, vocab % 4 == 0 ? 4 : 1);
      std::vector<SampleRow> rows(static_cast<size_t>(num_rows));
      for (int64_t i = 0; i < num_rows; ++i) {
        rows[static_cast<size_t>(i)].logits_row = num_rows % 2 == 0 ? i : num_rows - 1 - i;
        rows[static_cast<size_t>(i)].temperature = 0.0F;
      }
      const std::vector<SampledToken> results = Sample(logits, rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float* row = logits.Row(rows[i].logits_row);
        EXPECT_EQ(results[i].token, std::max_element(row, row + vocab) - row)
            << "row " << i << " of " << num_rows << ", vocabulary " << vocab;
      }
    }
  }
}

TEST_F(CudaSamplingTest, EverythingMatchesTheHost) {
  // From one CTA a row to clusters, with and without 16-byte rows, and slices too large for shared memory.
  struct Case {
    int64_t vocab, rows, gap;
  };
  for (const Case& c : {Case{100, 300, 0},
                        {101, 40, 0},
                        {8000, 40, 3},
                        {49152, 40, 0},
                        {49999, 20, 0},
                        {128256, 40, 0},
                        {500'001, 10, 0}}) {
    for (const bool ties : {false, true}) {
      CudaMatrix logits = RandomLogits(c.rows, c.vocab, ties, c.gap);
      std::vector<OwnedRow> rows;
      for (int64_t i = 0; i < c.rows; ++i) rows.push_back(AnyRow(i, c.vocab));
      CompareWithHost(logits, rows);
    }
  }
}

TEST_F(CudaSamplingTest, DrawsFollowTheDistribution) {
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
  for (const int64_t vocab : {30, 700, 9000}) {
    const int64_t num_rows = 500;
    const int num_calls = vocab > 1000 ? 10 : 40;
    const double num_draws = static_cast<double>(num_rows) * num_calls;
    std::vector<float> values = RowValues(RandomLogits(1, vocab), 0);
    if (vocab > 1000) {
      for (float& value : values) value *= 2.5F;
    }
    CudaMatrix logits(device(), DType::kF32, num_rows, vocab);
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t c = 0; c < vocab; ++c) logits.At(r, c) = values[static_cast<size_t>(c)];
    }
    for (const SampleRow& kind : {SampleRow{}, warm, top_k, top_p, min_p, all}) {
      const std::vector<double> expected = ReferenceProbabilities(values, kind);
      const std::vector<double> allowed = ReferenceProbabilities(values, kind, 1e-6);
      std::vector<int> counts(static_cast<size_t>(vocab));
      for (int call = 0; call < num_calls; ++call) {
        std::vector<SampleRow> rows(static_cast<size_t>(num_rows), kind);
        for (int64_t r = 0; r < num_rows; ++r) {
          rows[static_cast<size_t>(r)].logits_row = r;
          rows[static_cast<size_t>(r)].seed = 77;
          rows[static_cast<size_t>(r)].position = static_cast<uint64_t>(call * num_rows + r);
        }
        for (const SampledToken& sampled : Sample(logits, rows)) {
          ASSERT_GE(sampled.token, 0);
          ASSERT_LT(sampled.token, vocab);
          ++counts[static_cast<size_t>(sampled.token)];
        }
      }
      double chi_square = 0;
      double rare_expected = 0;
      double rare_count = 0;
      int bins = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        if (allowed[i] == 0) {
          ASSERT_EQ(counts[i], 0) << "token " << i << " was excluded, vocabulary " << vocab;
        } else if (expected[i] * num_draws < 8) {
          rare_expected += expected[i] * num_draws;
          rare_count += counts[i];
        } else {
          const double difference = counts[i] - expected[i] * num_draws;
          chi_square += difference * difference / (expected[i] * num_draws);
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
          << "vocabulary " << vocab << " top_k " << kind.top_k << " top_p " << kind.top_p << " min_p "
          << kind.min_p;
    }
  }
}

TEST_F(CudaSamplingTest, WhereAllAllowedTokensAreBannedAnAllowedOneIsDrawn) {
  for (const int64_t vocab : {100, 49152, 500'001}) {
    CudaMatrix logits = RandomLogits(4, vocab);
    std::vector<OwnedRow> rows(4);
    for (int64_t i = 0; i < 4; ++i) {
      rows[static_cast<size_t>(i)].row.logits_row = i;
      rows[static_cast<size_t>(i)].row.num_top_logprobs = i % 2 == 0 ? -1 : 4;
      rows[static_cast<size_t>(i)].row.temperature = i < 2 ? 0.0F : 1.0F;
      rows[static_cast<size_t>(i)].banned = {7, 33, 99};
      rows[static_cast<size_t>(i)].allowed = MakeTokenMask(rows[static_cast<size_t>(i)].banned, vocab);
    }
    CompareWithHost(logits, rows);
    for (const SampledToken& sampled : Sample(logits, RowsOf(rows)))
      EXPECT_TRUE(sampled.token == 7 || sampled.token == 33 || sampled.token == 99) << sampled.token;
    for (OwnedRow& row : rows) row.allowed.assign(NumMaskWords(vocab), 0);
    CompareWithHost(logits, rows);  // none is allowed: as if all were, bans included
  }
}

TEST_F(CudaSamplingTest, DrawIsAFunctionOfSeedAndPosition) {
  for (const int64_t vocab : {1000, 20000}) {
    CudaMatrix logits = RandomLogits(200, vocab);
    for (int64_t r = 1; r < 200; ++r) {
      for (int64_t c = 0; c < vocab; ++c) logits.At(r, c) = logits.At(0, c);
    }
    std::vector<SampleRow> rows(200);
    for (int64_t r = 0; r < 200; ++r) {
      rows[static_cast<size_t>(r)].logits_row = r;
      rows[static_cast<size_t>(r)].temperature = 1.5F;
      rows[static_cast<size_t>(r)].top_p = 0.95F;
      rows[static_cast<size_t>(r)].position = static_cast<uint64_t>(r / 2);
    }
    const std::vector<SampledToken> first = Sample(logits, rows);
    std::map<int32_t, int> tokens;
    for (size_t r = 0; r < 200; r += 2) {
      EXPECT_EQ(first[r].token, first[r + 1].token) << r;
      ++tokens[first[r].token];
    }
    EXPECT_GT(tokens.size(), 5U);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const std::vector<SampledToken> again = Sample(logits, rows);
      for (size_t r = 0; r < 200; ++r) EXPECT_EQ(again[r].token, first[r].token) << r;
    }
  }
}

// As an iteration does that is enqueued behind the one that draws: rows of both kernels, and of each alone.
TEST_F(CudaSamplingTest, DrawnTokensAreThereForOpsBehind) {
  constexpr int64_t kVocab = 49152;
  constexpr int64_t kRows = 300;
  CudaMatrix logits = RandomLogits(kRows, kVocab);
  auto pinned = device().Allocate(2 * kRows * sizeof(int32_t), MemoryKind::kPinned, "test");
  auto memory = device().Allocate(2 * kRows * sizeof(int32_t), MemoryKind::kDevice, "test");
  ASSERT_TRUE(pinned.ok() && memory.ok());
  auto* const host = pinned->as<int32_t>();
  auto* const drawn = memory->as<int32_t>();
  for (const int kind : {0, 1, 2}) {  // mixed, all greedy, all drawn
    std::vector<SampleRow> rows(kRows);
    for (int64_t i = 0; i < kRows; ++i) {
      SampleRow& row = rows[static_cast<size_t>(i)];
      row.logits_row = kRows - 1 - i;
      row.temperature = kind == 1 || (kind == 0 && i % 3 == 0) ? 0.0F : 1.0F;
      row.position = static_cast<uint64_t>(i);
    }
    std::vector<SampledToken> results(rows.size());
    // Every second id is one of a drawn token, of the rows backwards.
    for (int64_t i = 0; i < kRows; ++i) host[i] = static_cast<int32_t>(i % 2 == 0 ? i : ~(kRows - 1 - i));
    logits.Upload();
    ops().Sample(stream(), {logits.view(), rows, results, drawn});
    stream().Copy(drawn + kRows, host, kRows * sizeof(int32_t));
    ops().PutDrawnTokens(stream(), {.token_ids = drawn + kRows, .num_rows = kRows, .drawn = drawn});
    stream().Copy(host, drawn, 2 * kRows * sizeof(int32_t));
    stream().Synchronize();
    for (int64_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(host[i], results[static_cast<size_t>(i)].token) << kind << ", row " << i;
      const int32_t expected =
          i % 2 == 0 ? static_cast<int32_t>(i) : results[static_cast<size_t>(kRows - 1 - i)].token;
      EXPECT_EQ(host[kRows + i], expected) << kind << ", row " << i;
    }
  }
}

// Only what came before the event is awaited and handed over.
TEST_F(CudaSamplingTest, ResultsComeUpToAnEvent) {
  CudaMatrix logits = RandomLogits(2, 10000);
  logits.Upload();
  const auto event = device().CreateEvent();
  const auto gate = device().CreateFlag();
  const std::vector<SampleRow> first(1);
  std::vector<SampleRow> second(1);
  second[0].logits_row = 1;
  std::vector<SampledToken> first_result(1);
  std::vector<SampledToken> second_result(1);
  first_result[0].token = second_result[0].token = -1;
  ops().Sample(stream(), {logits.view(), first, first_result});
  stream().Record(*event);
  stream().WaitFlag(*gate, 1);
  ops().Sample(stream(), {logits.view(), second, second_result});
  stream().SynchronizeTo(*event);
  EXPECT_GE(first_result[0].token, 0);
  EXPECT_EQ(second_result[0].token, -1);
  gate->Set(1);
  stream().Synchronize();
  EXPECT_GE(second_result[0].token, 0);
}

// Several calls under way at once, and memory that is used again in later iterations with other sizes.
TEST_F(CudaSamplingTest, CallsBeforeASynchronizeDoNotDisturbEachOther) {
  constexpr int64_t kVocab = 10000;
  for (int iteration = 0; iteration < 6; ++iteration) {
    std::vector<CudaMatrix> logits;
    std::vector<std::vector<OwnedRow>> owned(3);
    std::vector<std::vector<SampleRow>> rows;
    std::vector<std::vector<SampledToken>> results;
    for (int64_t call = 0; call < 3; ++call) {
      const int64_t num_rows = call == 0 ? 5 : 20 * (iteration + 1);
      logits.push_back(RandomLogits(num_rows, kVocab));
      logits.back().Upload();
      for (int64_t r = 0; r < num_rows; ++r) {
        OwnedRow row = AnyRow(call == 0 ? r * 10 : r + call, kVocab);  // the first: all greedy
        row.row.logits_row = num_rows - 1 - r;
        owned[static_cast<size_t>(call)].push_back(std::move(row));
      }
      rows.push_back(RowsOf(owned[static_cast<size_t>(call)]));
      results.emplace_back(rows.back().size());
    }
    for (size_t call = 0; call < 3; ++call) {
      ops().Sample(stream(), {logits[call].view(), rows[call], results[call]});
    }
    stream().Synchronize();
    for (size_t call = 0; call < 3; ++call) {
      const std::vector<SampledToken> alone = Sample(logits[call], rows[call]);
      for (size_t r = 0; r < alone.size(); ++r) {
        EXPECT_EQ(results[call][r].token, alone[r].token) << "call " << call << " row " << r;
        if (rows[call][r].temperature > 0 || rows[call][r].forced_token >= 0) continue;
        const std::vector<float> values = RowValues(logits[call], rows[call][r].logits_row);
        EXPECT_EQ(results[call][r].token, HostSample(values, rows[call][r]).token)
            << "call " << call << " row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
