#include "cpu_attention/decode_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem {
namespace {

std::vector<DecodeSequence> Sequences(const std::vector<int64_t>& contexts, int64_t block_size) {
  std::vector<DecodeSequence> sequences;
  int32_t next_block = 0;
  for (const int64_t context : contexts) {
    DecodeSequence& sequence = sequences.emplace_back(DecodeSequence{.context_len = context});
    sequence.block_table.resize(static_cast<size_t>((context + block_size - 1) / block_size));
    for (int32_t& block : sequence.block_table) block = next_block++;
  }
  return sequences;
}

DecodeShape Llama8B() {
  return {.kv = {KvFormat::Plain(DType::kBF16), 32, 8, 128}, .num_heads = 32};
}

// Bytes of each item, in order.
std::vector<int64_t> ItemBytes(const DecodePlan& plan, int64_t part) {
  std::vector<int64_t> bytes;
  for (int64_t i = 0; i < plan.num_items(part); ++i) bytes.push_back(plan.item_bytes(part, i));
  return bytes;
}

TEST(DecodePlanTest, ItemsAddUpToAllBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    DecodeShape shape = {
        .kv = {KvFormat::Plain(DType::kF32), 32, static_cast<int64_t>(1 + random() % 9), 64}};
    shape.num_heads = shape.kv.num_kv_heads * static_cast<int64_t>(1 + random() % 4);
    shape.sliding_window = random() % 3 == 0 ? static_cast<int64_t>(1 + random() % 1000) : 0;
    const KvParts parts = SplitHeads(shape.kv.num_kv_heads, static_cast<int64_t>(1 + random() % 3));
    if (parts.num_parts > 1) shape.heads_per_part = parts.heads_per_part;
    std::vector<int64_t> contexts(random() % 12);
    int64_t tokens = 0;
    for (int64_t& context : contexts) {
      context = static_cast<int64_t>(1 + random() % 5000);
      tokens += shape.sliding_window > 0 ? std::min(context, shape.sliding_window) : context;
    }
    const DecodePlan plan(Sequences(contexts, 32), shape, static_cast<int>(1 + random() % 20));
    EXPECT_EQ(plan.kv_bytes(), tokens * shape.kv.num_kv_heads * 64 * 4 * 2);
    EXPECT_EQ(plan.num_parts(), parts.num_parts);
    int64_t sum = 0;
    for (int64_t part = 0; part < plan.num_parts(); ++part) {
      for (const int64_t bytes : ItemBytes(plan, part)) {
        EXPECT_GT(bytes, 0);
        sum += bytes;
      }
    }
    EXPECT_EQ(sum, plan.kv_bytes());
  }
}

// Whatever the order in which threads take them, greedy claiming of the items ends within a few percent of
// the ideal.
TEST(DecodePlanTest, OneLongAndManyShortContextsFillAllThreads) {
  const std::vector<std::vector<int64_t>> batches = {{32768},
                                                     {8192, 100, 100},
                                                     std::vector<int64_t>(256, 512),
                                                     std::vector<int64_t>(17, 1000),
                                                     {20000, 19000, 64}};
  for (const auto& contexts : batches) {
    for (const int num_threads : {2, 4, 8, 16}) {
      const DecodePlan plan(Sequences(contexts, 32), Llama8B(), num_threads);
      std::vector<int64_t> load(static_cast<size_t>(num_threads));
      for (const int64_t bytes : ItemBytes(plan, 0)) *std::min_element(load.begin(), load.end()) += bytes;
      const auto ideal = static_cast<double>(plan.kv_bytes()) / num_threads;
      EXPECT_LT(static_cast<double>(*std::max_element(load.begin(), load.end())), 1.03 * ideal + (256 << 10))
          << contexts.size() << " rows, first " << contexts.front() << ", " << num_threads << " threads";
    }
  }
}

// Large items first: there are far fewer of them than of partitions.
TEST(DecodePlanTest, ItemsAreNoSmallerThanTheyNeedToBe) {
  const DecodePlan plan(Sequences(std::vector<int64_t>(256, 2048), 32), Llama8B(), 16);
  EXPECT_LT(plan.num_items(0), 700);
  EXPECT_GE(plan.num_items(0), 256);
  const DecodePlan single(Sequences({300}, 32), Llama8B(), 1);
  EXPECT_LE(single.num_items(0), 8);
}

TEST(DecodePlanTest, RejectsATableThatIsTooShort) {
  auto sequences = Sequences({100}, 32);
  sequences.front().block_table.pop_back();
  EXPECT_DEATH(DecodePlan(sequences, Llama8B(), 2), "3 blocks of 32 tokens, context 100");
}

}  // namespace
}  // namespace tandem
