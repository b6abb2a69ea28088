#include "execute/main_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "execute/execute_testing.h"
#include "plan/plan_testing.h"

namespace tandem {
namespace {

using testing::Blocks;
using testing::Chunk;
using testing::CpuDecode;
using ::testing::ElementsAre;
using testing::GpuDecode;
using testing::InputOf;

constexpr int64_t kBlockSize = 4;

void AddSpan(const RowSpan& span, std::vector<int32_t> blocks, IterationInput* input) {
  input->plan.main.spans.push_back(span);
  input->main.push_back(InputOf(span, std::move(blocks)));
}

RowSpan Draft(SequenceId sequence, int64_t position, int64_t num_tokens) {
  RowSpan span = GpuDecode(sequence, position);
  span.num_tokens = num_tokens;
  return span;
}

TEST(MainRowsTest, KindsStandTogetherInThePlansOrder) {
  testing::ExecuteBench bench;
  const SharedParts& parts = bench.parts();
  KvTransit transit(parts.device, parts.ops, parts.kv, parts.transit_slots);
  transit.Begin(0);
  const int64_t block_size = bench.block_size();
  IterationInput input;
  AddSpan(GpuDecode(1, 5), {7}, &input);
  AddSpan(Chunk(2, 3, 2, true, Tier::kCpu), {9}, &input);
  AddSpan(CpuDecode(3, 6), {4}, &input);
  AddSpan(Chunk(4, 0, 3, false), {2}, &input);
  AddSpan(GpuDecode(5, 2), {3}, &input);
  AddSpan(Draft(6, 8, 2), {1}, &input);
  AddSpan(Chunk(7, 0, 1, true), {5}, &input);  // a prompt of one token is no decode
  MainRows rows = LayOutMainRows(&input, block_size, &transit, 0);

  EXPECT_THAT(rows.span_order, ElementsAre(3, 5, 6, 0, 4, 1, 2));
  EXPECT_EQ(rows.num_gpu_rows, 3 + 2 + 1 + 2);
  EXPECT_EQ(rows.num_transit_rows, 2);
  EXPECT_EQ(rows.num_cpu_rows, 1);
  EXPECT_EQ(rows.rider_begin, 11);
  EXPECT_THAT(rows.positions, ElementsAre(0, 1, 2, 8, 9, 0, 5, 2, 3, 4, 6));
  EXPECT_THAT(rows.token_ids, ElementsAre(400, 401, 402, 108, 109, 200, 105, 2, 203, 204, 306));
  const auto slot = [&](int64_t block, int64_t offset) { return block * block_size + offset; };
  // The chunk in transit is in the first block of a slot, whatever its block in the cpu tier.
  EXPECT_THAT(rows.slots, ElementsAre(slot(2, 0), slot(2, 1), slot(2, 2), slot(1, 8), slot(1, 9), slot(5, 0),
                                      slot(7, 5), slot(3, 2), slot(0, 3), slot(0, 4), -1));
  // Both rows of the draft, the last row of the prompts, every decode.
  EXPECT_THAT(rows.logits.row_indices, ElementsAre(3, 4, 5, 6, 7, 9, 10));

  ASSERT_EQ(rows.gpu_attention.sequences.size(), 5U);
  EXPECT_EQ(rows.gpu_attention.num_rows, 8);
  const AttentionSequence& draft = rows.gpu_attention.sequences[1];
  EXPECT_EQ(draft.row_begin, 3);
  EXPECT_EQ(draft.num_rows, 2);
  EXPECT_EQ(draft.context_len, 10);
  EXPECT_THAT(draft.block_table, ElementsAre(1));
  ASSERT_EQ(rows.transit_attention.sequences.size(), 1U);
  EXPECT_EQ(rows.transit_attention.sequences[0].row_begin, 0);
  EXPECT_EQ(rows.transit_attention.sequences[0].context_len, 5);
  EXPECT_THAT(rows.transit_attention.sequences[0].block_table, ElementsAre(0));
  ASSERT_EQ(rows.cpu_sequences.size(), 1U);
  EXPECT_EQ(rows.cpu_sequences[0].context_len, 7);
  EXPECT_THAT(rows.cpu_sequences[0].block_table, ElementsAre(4));
}

TEST(MainRowsTest, SlotsFollowTheTable) {
  IterationInput input;
  // Its table may know more blocks than it needs.
  AddSpan(Chunk(1, 2, 7, true), {5, 0, 3, 9}, &input);
  const MainRows rows = LayOutMainRows(&input, kBlockSize, nullptr, 0);
  EXPECT_THAT(rows.slots, ElementsAre(22, 23, 0, 1, 2, 3, 12));
  EXPECT_THAT(rows.gpu_attention.sequences[0].block_table, ElementsAre(5, 0, 3));
}

TEST(MainRowsTest, RidersLieBehindTheRowsOfAGraph) {
  IterationInput input;
  AddSpan(GpuDecode(1, 5), Blocks(0, 2), &input);
  AddSpan(GpuDecode(2, 1), {4}, &input);
  // One enters, one is amid, one ends; two of them sampled rows.
  std::vector<Cohort> cohorts(3);
  cohorts[0].rows = {CpuDecode(10, 3)};
  cohorts[1].rows = {CpuDecode(11, 4)};
  cohorts[2].rows = {CpuDecode(12, 5), CpuDecode(13, 6)};
  cohorts[1].cursor = 0;
  cohorts[2].cursor = 1;
  std::vector<Rider> riders;
  for (size_t i = 0; i < cohorts.size(); ++i) {
    riders.push_back({.step = i, .cohort = &cohorts[i]});
    input.cohorts.emplace_back();
    if (i == 1) continue;
    for (const RowSpan& row : cohorts[i].rows) input.cohorts[i].push_back(InputOf(row, {1}));
  }
  MainRows rows = LayOutMainRows(&input, kBlockSize, nullptr, 4);
  AddRiderRows(input, riders, 2, 3, &rows);
  EXPECT_EQ(rows.rider_begin, 4);
  EXPECT_EQ(rows.num_rider_rows, 3);
  EXPECT_THAT(rows.token_ids, ElementsAre(105, 201, 0, 0, 3, 0, 0));
  EXPECT_THAT(rows.positions, ElementsAre(5, 1, 0, 0, 3, 0, 0));
  EXPECT_THAT(rows.slots, ElementsAre(5, 17, -1, -1, -1, -1, -1));
  EXPECT_EQ(rows.first_rider_result, 2U);
  EXPECT_THAT(rows.logits.row_indices, ElementsAre(0, 1, 4, 5));
}

SampledToken Token(int32_t token) {
  return {.token = token};
}

TEST(MainRowsTest, ResultsComeInTheOrderOfTheRows) {
  IterationInput input;
  AddSpan(GpuDecode(1, 5), Blocks(0, 2), &input);
  AddSpan(CpuDecode(2, 3), {1}, &input);
  AddSpan(Draft(3, 1, 2), {2}, &input);
  AddSpan(RowSpan::Chunk(4, 0, 3, 1, Tier::kGpu), {3}, &input);
  input.main[3].given_tokens = {42};
  AddSpan(Chunk(5, 0, 3, false), {4}, &input);
  for (const bool cpu_failed : {false, true}) {
    IterationInput copy = input;
    MainRows rows = LayOutMainRows(&copy, kBlockSize, nullptr, 0);
    for (int32_t i = 0; i < 6; ++i) rows.logits.results.push_back(Token(i));
    std::vector<SequenceResult> results;
    CollectResults(copy, cpu_failed, &rows, &results);
    ASSERT_EQ(results.size(), 5U);
    std::vector<SequenceId> sequences;
    std::vector<int64_t> computed;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<std::vector<int32_t>> given;
    for (const SequenceResult& result : results) {
      sequences.push_back(result.sequence);
      computed.push_back(result.num_computed);
      std::vector<int32_t>& drawn = tokens.emplace_back();
      for (const SampledToken& token : result.tokens) drawn.push_back(token.token);
      std::vector<int32_t>& known = given.emplace_back();
      for (const SampledToken& token : result.prompt_logprobs) known.push_back(token.token);
      EXPECT_EQ(result.failed, cpu_failed && result.sequence == 2);
    }
    EXPECT_THAT(sequences, ElementsAre(3, 4, 5, 1, 2));
    EXPECT_THAT(computed, ElementsAre(3, 3, 3, 6, 4));
    EXPECT_THAT(tokens, ElementsAre(ElementsAre(0, 1), ElementsAre(3), ElementsAre(), ElementsAre(4),
                                    ElementsAre(5)));
    EXPECT_THAT(given,
                ElementsAre(ElementsAre(), ElementsAre(2), ElementsAre(), ElementsAre(), ElementsAre()));
  }
}

TEST(MainRowsDeathTest, InputsFitTheSpans) {
  IterationInput input;
  RowSpan draft = CpuDecode(8, 4);
  draft.num_tokens = 2;
  AddSpan(draft, {1, 2}, &input);
  EXPECT_DEATH(LayOutMainRows(&input, kBlockSize, nullptr, 0),
               "CPU attention attends one token of a sequence");
  IterationInput few_blocks;
  AddSpan(GpuDecode(9, 4), {1}, &few_blocks);
  EXPECT_DEATH(LayOutMainRows(&few_blocks, kBlockSize, nullptr, 0), "sequence 9: 1 blocks for 5 tokens");
  IterationInput few_tokens;
  AddSpan(Chunk(9, 0, 2, false), {1}, &few_tokens);
  few_tokens.main[0].token_ids.pop_back();
  EXPECT_DEATH(LayOutMainRows(&few_tokens, kBlockSize, nullptr, 0), "sequence 9: 2 rows with 1 tokens");
}

}  // namespace
}  // namespace tandem
