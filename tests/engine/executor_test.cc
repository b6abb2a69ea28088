// Hand-made plans on the real executor: wherever the attention of a row is computed, and whenever its cohort
// visits, the tokens are the same bits.

#include "execute/executor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"

namespace tandem {
namespace {

constexpr int kNumSequences = 6;
constexpr size_t kNumTokens = 12;

std::vector<int32_t> PromptOf(SequenceId id) {
  std::vector<int32_t> prompt(5 + 11 * static_cast<size_t>(id));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>((i * 37 + id * 101 + 3) % 300);
  return prompt;
}

// The parameter: parts of the cpu tier (NUMA nodes).
class ExecutorTest : public ::testing::TestWithParam<int64_t> {
 protected:
  ExecutorTest() : harness_(FixturePath("families/llama3"), {.cpu_parts = GetParam()}) {
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      harness_.AddRequest(id, PromptOf(id));
      harness_.Prefill(id);
    }
    // The reference: one sequence at a time, gpu tier only.
    DecoderHarness reference(FixturePath("families/llama3"), {.num_threads = 1});
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      reference.AddRequest(id, PromptOf(id));
      reference.Prefill(id);
      while (reference.request(id).output_tokens.size() < kNumTokens) {
        IterationPlan plan;
        plan.main.gpu_decodes.push_back(reference.NextRow(id));
        reference.Run(plan);
      }
      expected_.push_back(reference.request(id).output_tokens);
    }
  }

  void MoveToCpu(const std::vector<SequenceId>& ids) {
    IterationPlan plan;
    for (const SequenceId id : ids) plan.moves.push_back({id, Tier::kCpu});
    harness_.Run(plan);
  }

  bool Unfinished(SequenceId id) const { return harness_.request(id).output_tokens.size() < kNumTokens; }

  void ExpectReferenceTokens() {
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      std::vector<int32_t> tokens = harness_.request(id).output_tokens;
      tokens.resize(std::min(tokens.size(), kNumTokens));
      EXPECT_EQ(tokens, expected_[id]) << "sequence " << id;
    }
  }

  int64_t num_layers() const { return harness_.config().num_layers; }

  DecoderHarness harness_;
  std::vector<std::vector<int32_t>> expected_;
};

TEST_P(ExecutorTest, BatchedGpuDecodes) {
  while (Unfinished(0)) {
    IterationPlan plan;
    for (SequenceId id = 0; id < kNumSequences; ++id) plan.main.gpu_decodes.push_back(harness_.NextRow(id));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// Replays of recorded sizes, with rows to spare and without, between iterations that are enqueued op by op.
TEST(DecodeGraphTest, ReplaysGiveTheSameTokens) {
  std::vector<std::vector<int32_t>> tokens;
  for (const bool graphs : {false, true}) {
    DecoderHarness harness(
        FixturePath("families/llama3"),
        {.graph_batch_sizes = graphs ? std::vector<int64_t>{1, 3, 4} : std::vector<int64_t>{}});
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      harness.AddRequest(id, PromptOf(id));
      harness.Prefill(id);
    }
    const auto unfinished = [&](SequenceId id) {
      return harness.request(id).output_tokens.size() < kNumTokens + 2 * id;
    };
    while (unfinished(kNumSequences - 1)) {  // 6 rows at first, which no graph holds, then fewer and fewer
      IterationPlan plan;
      for (SequenceId id = 0; id < kNumSequences; ++id) {
        if (unfinished(id)) plan.main.gpu_decodes.push_back(harness.NextRow(id));
      }
      harness.Run(plan);
    }
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      const std::vector<int32_t>& output = harness.request(id).output_tokens;
      if (graphs) {
        EXPECT_EQ(output, tokens[id]) << "sequence " << id;
      } else {
        tokens.push_back(output);
      }
    }
  }
}

TEST_P(ExecutorTest, MainSubBatchMixesBothTiers) {
  MoveToCpu({1, 3, 5});
  while (Unfinished(0)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 4}) plan.main.gpu_decodes.push_back(harness_.NextRow(id));
    for (const SequenceId id : {1, 3, 5}) plan.main.cpu_decodes.push_back(harness_.NextRow(id));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// NEO: one cohort alternates with the main sub-batch layer by layer.
TEST_P(ExecutorTest, CohortVisitsEveryLayer) {
  MoveToCpu({1, 3, 5});
  while (Unfinished(0)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2}) plan.main.gpu_decodes.push_back(harness_.NextRow(id));
    CohortStep& step = plan.cohorts.emplace_back();
    step.cohort = 7;
    for (const SequenceId id : {1, 3, 5}) step.rows.push_back(harness_.NextRow(id));
    for (int64_t layer = kEntry; layer < num_layers(); ++layer) step.visits.push_back({layer, layer});
    harness_.Run(plan);
    IterationPlan rest;
    rest.main.gpu_decodes.push_back(harness_.NextRow(4));
    harness_.Run(rest);
  }
  ExpectReferenceTokens();
}

// APEX: two staggered cohorts, one layer an iteration each, while the main sub-batch goes on.
TEST_P(ExecutorTest, StaggeredCohortsAdvanceOneLayerAnIteration) {
  MoveToCpu({1, 3, 5});
  struct Flight {
    CohortId cohort;
    std::vector<SequenceId> ids;
    int64_t cursor = kEntry;
    std::vector<DecodeRow> rows;
  };
  std::vector<Flight> flights = {{1, {1, 3}}, {2, {5}}};
  for (int iteration = 0; Unfinished(1) || Unfinished(5) || Unfinished(0); ++iteration) {
    ASSERT_LT(iteration, 1000);
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 4}) {
      if (Unfinished(id)) plan.main.gpu_decodes.push_back(harness_.NextRow(id));
    }
    for (size_t i = 0; i < flights.size(); ++i) {
      Flight& flight = flights[i];
      if (iteration < static_cast<int>(i)) continue;  // the second starts an iteration later
      if (flight.cursor == kEntry) {
        if (!Unfinished(flight.ids[0])) continue;
        flight.rows.clear();
        for (const SequenceId id : flight.ids) flight.rows.push_back(harness_.NextRow(id));
      }
      plan.cohorts.push_back({.cohort = flight.cohort,
                              .rows = flight.rows,
                              .cursor = flight.cursor,
                              .visits = {{flight.cursor, flight.cursor}}});
      flight.cursor = flight.cursor + 1 == num_layers() ? kEntry : flight.cursor + 1;
    }
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// The cursor need not equal the boundary: a cohort that lags behind, without any main sub-batch.
TEST_P(ExecutorTest, CohortAloneWithALaggingCursor) {
  MoveToCpu({0, 1, 2, 3, 4, 5});
  const int64_t last = num_layers() - 1;
  while (Unfinished(0)) {
    std::vector<DecodeRow> rows;
    for (SequenceId id = 0; id < kNumSequences; ++id) rows.push_back(harness_.NextRow(id));
    IterationPlan first;
    first.cohorts.push_back({.cohort = 1, .rows = rows, .cursor = kEntry, .visits = {{last, kEntry}}});
    harness_.Run(first);
    for (int64_t layer = 0; layer <= last; ++layer) {
      IterationPlan plan;
      plan.cohorts.push_back({.cohort = 1, .rows = rows, .cursor = layer, .visits = {{last - layer, layer}}});
      harness_.Run(plan);
    }
  }
  ExpectReferenceTokens();
}

TEST_P(ExecutorTest, DroppedCohortMayEnterAgain) {
  MoveToCpu({1, 3});
  const std::vector<DecodeRow> rows = {harness_.NextRow(1), harness_.NextRow(3)};
  IterationPlan enter;
  enter.cohorts.push_back(
      {.cohort = 1, .rows = rows, .cursor = kEntry, .visits = {{kEntry, kEntry}, {0, 0}}});
  harness_.Run(enter);
  harness_.executor().DropCohort(1);
  harness_.executor().DropCohort(1);
  while (Unfinished(0)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 4, 5}) plan.main.gpu_decodes.push_back(harness_.NextRow(id));
    for (const SequenceId id : {1, 3}) plan.main.cpu_decodes.push_back(harness_.NextRow(id));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

TEST_P(ExecutorTest, ChunkedPrefillBesideDecodesAndMovesBack) {
  harness_.cache().Release(0);
  Request& request = harness_.AddRequest(0, PromptOf(0));
  const int64_t prompt_len = request.num_tokens();
  IterationPlan first;
  first.main.prefills.push_back({.sequence = 0, .start = 0, .num_tokens = prompt_len - 2, .samples = false});
  first.main.gpu_decodes.push_back(harness_.NextRow(1));
  first.moves.push_back({2, Tier::kCpu});
  harness_.Run(first);
  IterationPlan second;
  second.main.prefills.push_back({.sequence = 0, .start = prompt_len - 2, .num_tokens = 2, .samples = true});
  second.main.cpu_decodes.push_back(harness_.NextRow(2));
  harness_.Run(second);
  IterationPlan back;
  back.moves.push_back({2, Tier::kGpu});
  back.main.gpu_decodes.push_back(harness_.NextRow(3));
  harness_.Run(back);
  for (SequenceId id = 0; id < kNumSequences; ++id) {
    while (Unfinished(id)) {
      IterationPlan plan;
      plan.main.gpu_decodes.push_back(harness_.NextRow(id));
      harness_.Run(plan);
    }
  }
  ExpectReferenceTokens();
  for (SequenceId id = 0; id < kNumSequences; ++id) harness_.cache().Release(id);
  EXPECT_EQ(harness_.cache().free_blocks(Tier::kGpu), harness_.cache().total_blocks(Tier::kGpu));
  EXPECT_EQ(harness_.cache().free_blocks(Tier::kCpu), harness_.cache().total_blocks(Tier::kCpu));
}

INSTANTIATE_TEST_SUITE_P(CpuParts, ExecutorTest, testing::Values(1, 2));

}  // namespace
}  // namespace tandem
