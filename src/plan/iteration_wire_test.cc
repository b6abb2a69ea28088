#include "plan/iteration_wire.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

template <typename T>
T ThroughWire(T value) {
  WireWriter writer;
  writer(value);
  const std::vector<std::byte> bytes = writer.Take();
  T read{};
  WireReader reader(bytes);
  reader(read);
  return read;
}

TEST(IterationWireTest, WhatAnExecutorObeysGoesOver) {
  IterationInput input;
  input.plan.iteration = 7;
  input.plan.strategy = "async";
  input.plan.dropped = {3, 4};
  input.plan.moves = {{.sequence = 5, .to = Tier::kCpu}};
  input.plan.main.spans = {RowSpan::Chunk(1, 0, 40, 39, Tier::kGpu), RowSpan::Decode(2, 17, Tier::kCpu)};
  input.plan.main.spans.back().beginning = 99;
  input.plan.main.spans.back().num_shared = 16;
  input.plan.cohorts = {{.cohort = 8,
                         .rows = {RowSpan::Decode(6, 21, Tier::kCpu)},
                         .cursor = 2,
                         .visits = {{.boundary = 2, .layer = 2}},
                         .rides = true}};
  input.moves = {{.sequence = 5, .to = Tier::kCpu, .source_blocks = {1, 2}, .destination_blocks = {3, 4}}};
  SpanInput span;
  span.token_ids = {11, 12, kTokenToCome};
  span.block_table = {1, 5};
  span.sampling = SamplingInput{.temperature = 0.5F};
  span.given_tokens = {12};
  span.pooling = Pooling::kMean;
  SpanInput silent;
  silent.token_ids = {1};
  input.main = {span, silent};
  input.cohorts = {{}, {silent}};

  const IterationInput read = ThroughWire(input);
  EXPECT_EQ(read.plan.iteration, input.plan.iteration);
  EXPECT_EQ(read.plan.dropped, input.plan.dropped);
  EXPECT_EQ(read.plan.moves, input.plan.moves);
  EXPECT_EQ(read.plan.main, input.plan.main);
  EXPECT_EQ(read.plan.cohorts, input.plan.cohorts);
  ASSERT_EQ(read.moves.size(), 1U);
  EXPECT_EQ(read.moves[0].sequence, 5U);
  EXPECT_EQ(read.moves[0].to, Tier::kCpu);
  EXPECT_EQ(read.moves[0].source_blocks, input.moves[0].source_blocks);
  EXPECT_EQ(read.moves[0].destination_blocks, input.moves[0].destination_blocks);
  ASSERT_EQ(read.main.size(), 2U);
  EXPECT_EQ(read.main[0].token_ids, span.token_ids);
  EXPECT_EQ(read.main[0].block_table, span.block_table);
  EXPECT_EQ(read.main[0].given_tokens, span.given_tokens);
  EXPECT_EQ(read.main[0].pooling, span.pooling);
  // Which rows give logits all shards know; how a token is drawn rank 0 alone.
  EXPECT_TRUE(read.main[0].sampling.has_value());
  EXPECT_FALSE(read.main[1].sampling.has_value());
  ASSERT_EQ(read.cohorts.size(), 2U);
  EXPECT_TRUE(read.cohorts[0].empty());
  EXPECT_EQ(read.cohorts[1][0].token_ids, silent.token_ids);
}

struct Sentence {
  std::string text;
  bool ends = false;
};
template <typename Archive>
void OverWire(Archive& archive, Sentence& sentence) {
  auto& [text, ends] = sentence;
  archive(text, ends);
}

TEST(WireTest, AMessageThatIsTooShortIsABug) {
  Sentence sentence = {.text = "shard 1 of 3", .ends = true};
  EXPECT_EQ(ThroughWire(sentence).text, sentence.text);
  WireWriter writer;
  writer(sentence);
  std::vector<std::byte> bytes = writer.Take();
  bytes.pop_back();
  EXPECT_DEATH(
      {
        WireReader reader(bytes);
        reader(sentence);
      },
      "of a message");
}

}  // namespace
}  // namespace tandem
