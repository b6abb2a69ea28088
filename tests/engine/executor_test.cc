// Hand-made plans on the real executor: wherever the attention of a row is computed, and whenever its cohort
// visits, the tokens are the same bits.

#include "execute/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/executor_fixture.h"
#include "engine/held_workers.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

class ExecutorTest : public ExecutorFixture {};

TEST_P(ExecutorTest, BatchedGpuDecodes) {
  while (Unfinished(0)) {
    IterationPlan plan;
    for (SequenceId id = 0; id < kNumSequences; ++id) plan.main.spans.push_back(harness_.NextRow(id));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// A draft gives the tokens that decodes one by one give, however much of it is wrong, beside decodes and
// through several blocks.
TEST_P(ExecutorTest, DraftsGiveTheTokensOfDecodes) {
  for (int iteration = 0; Unfinished(0) || Unfinished(3); ++iteration) {
    IterationPlan plan;
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      const size_t num_output = harness_.request(id).output_tokens.size();
      const auto num_right = static_cast<size_t>(iteration) % 4;
      std::vector<int32_t> draft;
      for (size_t i = num_output; i < expected_[id].size() && draft.size() < num_right; ++i)
        draft.push_back(expected_[id][i]);
      draft.push_back(299);
      if (id % 2 == 1) draft.clear();
      harness_.Draft(id, draft);
      plan.main.spans.push_back(harness_.NextDraft(id));
    }
    const IterationResult result = harness_.Run(plan);
    for (const SequenceResult& sequence : result.sequences) {
      const RowSpan& span = plan.main.spans[sequence.sequence];
      EXPECT_EQ(static_cast<int64_t>(sequence.tokens.size()), span.num_tokens);
      EXPECT_EQ(sequence.num_computed, span.end());
    }
  }
  ExpectReferenceTokens();
}

// Echo: the prompt's tokens come with their log-probabilities, chunk by chunk, and the last row draws.
TEST_P(ExecutorTest, GivenTokensOfAPrompt) {
  constexpr SequenceId kEcho = 50;
  Request& request = harness_.AddRequest(kEcho, PromptOf(4));
  request.sampling.num_prompt_top_logprobs = 2;
  const int64_t prompt_len = request.num_tokens();
  std::vector<SampledToken> given;
  for (int64_t start = 0; start < prompt_len;) {
    const int64_t num_tokens = std::min<int64_t>(20, prompt_len - start);
    IterationPlan plan;
    plan.main.spans = {RowSpan::Chunk(kEcho, start, num_tokens, 0, Tier::kGpu), harness_.NextRow(1)};
    const IterationResult result = harness_.Run(plan);
    start += num_tokens;
    EXPECT_EQ(result.sequences[0].tokens.size(), start == prompt_len ? 1U : 0U);
    given.insert(given.end(), result.sequences[0].prompt_logprobs.begin(),
                 result.sequences[0].prompt_logprobs.end());
  }
  ASSERT_EQ(static_cast<int64_t>(given.size()), prompt_len - 1);
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(given[i].token, request.prompt_tokens[i + 1]);
    EXPECT_EQ(given[i].top_logprobs.size(), 2U);
    EXPECT_LT(given[i].logprob, 0.0F);
  }
  EXPECT_EQ(request.output_tokens[0], expected_[4][0]);
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
        if (unfinished(id)) plan.main.spans.push_back(harness.NextRow(id));
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
    for (const SequenceId id : {0, 2, 4}) plan.main.spans.push_back(harness_.NextRow(id));
    for (const SequenceId id : {1, 3, 5}) plan.main.spans.push_back(harness_.NextRow(id, Tier::kCpu));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// NEO: one cohort alternates with the main sub-batch layer by layer.
TEST_P(ExecutorTest, CohortVisitsEveryLayer) {
  MoveToCpu({1, 3, 5});
  while (Unfinished(0)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2}) plan.main.spans.push_back(harness_.NextRow(id));
    CohortStep& step = plan.cohorts.emplace_back();
    step.cohort = 7;
    for (const SequenceId id : {1, 3, 5}) step.rows.push_back(harness_.NextRow(id, Tier::kCpu));
    for (int64_t layer = kEntry; layer < num_layers(); ++layer) step.visits.push_back({layer, layer});
    harness_.Run(plan);
    IterationPlan rest;
    rest.main.spans.push_back(harness_.NextRow(4));
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
    std::vector<RowSpan> rows;
  };
  std::vector<Flight> flights = {{1, {1, 3}}, {2, {5}}};
  for (int iteration = 0; Unfinished(1) || Unfinished(5) || Unfinished(0); ++iteration) {
    ASSERT_LT(iteration, 1000);
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 4}) {
      if (Unfinished(id)) plan.main.spans.push_back(harness_.NextRow(id));
    }
    for (size_t i = 0; i < flights.size(); ++i) {
      Flight& flight = flights[i];
      if (iteration < static_cast<int>(i)) continue;  // the second starts an iteration later
      if (flight.cursor == kEntry) {
        if (!Unfinished(flight.ids[0])) continue;
        flight.rows.clear();
        for (const SequenceId id : flight.ids) flight.rows.push_back(harness_.NextRow(id, Tier::kCpu));
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
    std::vector<RowSpan> rows;
    for (SequenceId id = 0; id < kNumSequences; ++id) rows.push_back(harness_.NextRow(id, Tier::kCpu));
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
  const std::vector<RowSpan> rows = {harness_.NextRow(1, Tier::kCpu), harness_.NextRow(3, Tier::kCpu)};
  IterationPlan enter;
  enter.cohorts.push_back(
      {.cohort = 1, .rows = rows, .cursor = kEntry, .visits = {{kEntry, kEntry}, {0, 0}}});
  harness_.Run(enter);
  EXPECT_TRUE(harness_.DropCohort(1));
  EXPECT_TRUE(harness_.DropCohort(1));
  while (Unfinished(0)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 4, 5}) plan.main.spans.push_back(harness_.NextRow(id));
    for (const SequenceId id : {1, 3}) plan.main.spans.push_back(harness_.NextRow(id, Tier::kCpu));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

TEST_P(ExecutorTest, ChunkedPrefillBesideDecodesAndMovesBack) {
  harness_.books().Release(0);
  Request& request = harness_.AddRequest(0, PromptOf(0));
  const int64_t prompt_len = request.num_tokens();
  IterationPlan first;
  first.main.spans.push_back(testing::Chunk(0, 0, prompt_len - 2, false));
  first.main.spans.push_back(harness_.NextRow(1));
  first.moves.push_back({2, Tier::kCpu});
  harness_.Run(first);
  IterationPlan second;
  second.main.spans.push_back(testing::Chunk(0, prompt_len - 2, 2, true));
  second.main.spans.push_back(harness_.NextRow(2, Tier::kCpu));
  harness_.Run(second);
  IterationPlan back;
  back.moves.push_back({2, Tier::kGpu});
  back.main.spans.push_back(harness_.NextRow(3));
  harness_.Run(back);
  for (SequenceId id = 0; id < kNumSequences; ++id) {
    while (Unfinished(id)) {
      IterationPlan plan;
      plan.main.spans.push_back(harness_.NextRow(id));
      harness_.Run(plan);
    }
  }
  ExpectReferenceTokens();
  for (SequenceId id = 0; id < kNumSequences; ++id) harness_.books().Release(id);
  EXPECT_EQ(harness_.books().free_blocks(Tier::kGpu), harness_.books().total_blocks(Tier::kGpu));
  EXPECT_EQ(harness_.books().free_blocks(Tier::kCpu), harness_.books().total_blocks(Tier::kCpu));
}

// The prompts pass through the device to the cpu tier, in chunks that end inside blocks and beside each
// other, and take no block of the gpu tier.
TEST_P(ExecutorTest, PrefillToTheCpuTier) {
  const std::vector<SequenceId> moved = {1, 4, 5};
  for (const SequenceId id : moved) {
    harness_.books().Release(id);
    harness_.AddRequest(id, PromptOf(id));
  }
  const int64_t gpu_blocks_free = harness_.books().free_blocks(Tier::kGpu);
  for (int64_t chunk = 7; harness_.request(5).output_tokens.empty(); chunk += 13) {
    IterationPlan plan;
    for (const SequenceId id : moved) {
      const Request& request = harness_.request(id);
      const int64_t start = request.num_computed_tokens;
      const int64_t num_tokens = std::min(chunk, request.num_tokens() - start);
      if (!request.output_tokens.empty()) {
        plan.main.spans.push_back(harness_.NextRow(id, Tier::kCpu));
      } else {
        plan.main.spans.push_back(
            testing::Chunk(id, start, num_tokens, start + num_tokens == request.num_tokens(), Tier::kCpu));
      }
    }
    plan.main.spans.push_back(harness_.NextRow(0));
    harness_.Run(plan);
    EXPECT_EQ(harness_.books().free_blocks(Tier::kGpu), gpu_blocks_free);
  }
  while (Unfinished(0) || Unfinished(1) || Unfinished(5)) {
    IterationPlan plan;
    for (const SequenceId id : {0, 2, 3}) plan.main.spans.push_back(harness_.NextRow(id));
    plan.main.spans.push_back(harness_.NextRow(4, Tier::kCpu));
    CohortStep& step = plan.cohorts.emplace_back();
    for (const SequenceId id : {1, 5}) step.rows.push_back(harness_.NextRow(id, Tier::kCpu));
    for (int64_t layer = kEntry; layer < num_layers(); ++layer) step.visits.push_back({layer, layer});
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
}

// What moves decodes in its new tier in the same iteration, and what it leaves is written by others there.
TEST_P(ExecutorTest, MovedSequencesDecodeAtOnce) {
  // Fills the gpu tier but for two blocks, so that the moves must hand theirs on.
  KvBooks& books = harness_.books();
  constexpr SequenceId kFiller = 99;
  const int64_t spare_tokens = (books.free_blocks(Tier::kGpu) - 2) * books.block_size();
  ASSERT_TRUE(books.Reserve(kFiller, Tier::kGpu, spare_tokens));
  std::vector<Tier> tiers(kNumSequences, Tier::kGpu);
  for (int iteration = 0; Unfinished(0) || Unfinished(3); ++iteration) {
    IterationPlan plan;
    // Now one goes out, now it comes back while another goes.
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      const bool toggles = (iteration + static_cast<int>(id)) % 3 == 0;
      if (!toggles) continue;
      Tier& tier = tiers[id];
      tier = tier == Tier::kGpu ? Tier::kCpu : Tier::kGpu;
      plan.moves.push_back({id, tier});
    }
    for (SequenceId id = 0; id < kNumSequences; ++id)
      plan.main.spans.push_back(harness_.NextRow(id, tiers[id]));
    harness_.Run(plan);
  }
  ExpectReferenceTokens();
  EXPECT_EQ(books.in_flight_blocks(Tier::kGpu), 0);
  EXPECT_EQ(books.in_flight_blocks(Tier::kCpu), 0);
}

// The same where the cpu tier is full: what goes out needs the blocks of what comes in.
TEST_P(ExecutorTest, MovesFindRoomInEitherOrder) {
  KvBooks& books = harness_.books();
  const auto run = [&](std::vector<Move> moves, const std::vector<SequenceId>& on_cpu) {
    IterationPlan plan;
    plan.moves = std::move(moves);
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      const bool cpu = std::find(on_cpu.begin(), on_cpu.end(), id) != on_cpu.end();
      plan.main.spans.push_back(harness_.NextRow(id, cpu ? Tier::kCpu : Tier::kGpu));
    }
    harness_.Run(plan);
  };
  run({{0, Tier::kCpu}}, {0});
  constexpr SequenceId kFiller = 99;
  ASSERT_TRUE(books.Reserve(kFiller, Tier::kCpu, books.free_blocks(Tier::kCpu) * books.block_size()));
  ASSERT_EQ(books.free_blocks(Tier::kCpu), 0);
  ASSERT_LE(books.held_blocks(1), books.held_blocks(0));
  run({{1, Tier::kCpu}, {0, Tier::kGpu}}, {1});
  EXPECT_EQ(books.tier_of(0), Tier::kGpu);
  EXPECT_EQ(books.tier_of(1), Tier::kCpu);
  books.Release(kFiller);
  while (Unfinished(0) || Unfinished(3)) run({}, {1});
  ExpectReferenceTokens();
}

// Workers that do not come back: the rows concerned fail, the others are right, and once the workers are back
// everything goes on.
TEST(StallTest, EndsInAnErrorAndRecovers) {
  DecoderHarness harness(FixturePath("families/llama3"), {.stall_timeout = std::chrono::milliseconds(200)});
  DecoderHarness reference(FixturePath("families/llama3"), {});
  for (SequenceId id = 0; id < 3; ++id) {
    for (DecoderHarness* each : {&harness, &reference}) {
      each->AddRequest(id, PromptOf(id));
      each->Prefill(id);
    }
  }
  const auto decode_on_gpu = [](DecoderHarness* each, const std::vector<SequenceId>& ids) {
    IterationPlan plan;
    for (const SequenceId id : ids) plan.main.spans.push_back(each->NextRow(id));
    return each->Run(plan);
  };
  IterationPlan move;
  move.moves = {{1, Tier::kCpu}, {2, Tier::kCpu}};
  harness.Run(move);

  auto held = std::make_unique<HeldWorkers>(harness.executor().cpu_attention());
  IterationPlan plan;
  plan.main.spans.push_back(harness.NextRow(0));
  plan.main.spans.push_back(harness.NextRow(1, Tier::kCpu));
  CohortStep& step = plan.cohorts.emplace_back();
  step.rows.push_back(harness.NextRow(2, Tier::kCpu));
  for (int64_t layer = kEntry; layer < harness.config().num_layers; ++layer)
    step.visits.push_back({layer, layer});
  const IterationResult result = harness.Run(plan);
  EXPECT_TRUE(result.stalled);
  ASSERT_EQ(result.sequences.size(), 3U);
  for (const SequenceResult& sequence : result.sequences)
    EXPECT_EQ(sequence.failed, sequence.sequence != 0) << sequence.sequence;
  decode_on_gpu(&reference, {0, 1, 2});
  EXPECT_EQ(harness.request(0).output_tokens, reference.request(0).output_tokens);
  EXPECT_FALSE(harness.executor().CpuTierUsable());
  decode_on_gpu(&harness, {0});
  decode_on_gpu(&reference, {0});

  held.reset();
  while (!harness.executor().CpuTierUsable()) std::this_thread::yield();
  // What failed was not computed: the same rows once more.
  plan.main.spans[0] = harness.NextRow(0);
  EXPECT_FALSE(harness.Run(plan).stalled);
  decode_on_gpu(&reference, {0});
  for (SequenceId id = 0; id < 3; ++id)
    EXPECT_EQ(harness.request(id).output_tokens, reference.request(id).output_tokens) << id;
}

// A cohort that was in flight without a visit is lost with the others: its flags are aborted too.
TEST(StallTest, FailsCohortsThatDidNotVisit) {
  DecoderHarness harness(FixturePath("families/llama3"), {.stall_timeout = std::chrono::milliseconds(100)});
  DecoderHarness reference(FixturePath("families/llama3"), {});
  for (SequenceId id = 0; id < 3; ++id) {
    for (DecoderHarness* each : {&harness, &reference}) {
      each->AddRequest(id, PromptOf(id));
      each->Prefill(id);
    }
  }
  IterationPlan move;
  move.moves = {{0, Tier::kCpu}, {1, Tier::kCpu}, {2, Tier::kCpu}};
  harness.Run(move);
  IterationPlan enter;
  enter.cohorts.push_back({.cohort = 1,
                           .rows = {harness.NextRow(1, Tier::kCpu), harness.NextRow(2, Tier::kCpu)},
                           .visits = {{kEntry, kEntry}}});
  harness.Run(enter);
  {
    const HeldWorkers held(harness.executor().cpu_attention());
    IterationPlan plan;
    plan.main.spans.push_back(harness.NextRow(0, Tier::kCpu));
    const IterationResult result = harness.Run(plan);
    EXPECT_TRUE(result.stalled);
    std::vector<SequenceId> failed;
    for (const SequenceResult& sequence : result.sequences) {
      EXPECT_TRUE(sequence.failed);
      failed.push_back(sequence.sequence);
    }
    std::sort(failed.begin(), failed.end());
    EXPECT_EQ(failed, (std::vector<SequenceId>{0, 1, 2}));
  }
  while (!harness.executor().CpuTierUsable()) std::this_thread::yield();
  // The same cohort from its entry.
  enter.main.spans.push_back(harness.NextRow(0, Tier::kCpu));
  enter.cohorts[0].visits.clear();
  for (int64_t layer = kEntry; layer < harness.config().num_layers; ++layer)
    enter.cohorts[0].visits.push_back({layer, layer});
  EXPECT_FALSE(harness.Run(enter).stalled);
  IterationPlan on_gpu;
  for (SequenceId id = 0; id < 3; ++id) on_gpu.main.spans.push_back(reference.NextRow(id));
  reference.Run(on_gpu);
  for (SequenceId id = 0; id < 3; ++id)
    EXPECT_EQ(harness.request(id).output_tokens, reference.request(id).output_tokens) << id;
}

INSTANTIATE_TEST_SUITE_P(Machines, ExecutorTest,
                         ::testing::Values(Machine{"host", 1}, Machine{"host", 2}, Machine{"cuda", 1},
                                           Machine{"cuda", 2}),
                         NameOfMachine);

}  // namespace
}  // namespace tandem
