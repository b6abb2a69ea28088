#include "kv/kv_books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "kv/kv_books_testing.h"

namespace tandem {
namespace {

TEST(KvBooksTest, ReserveGrowsAndFailsWithoutChange) {
  const auto books = MakeBooks(12, 20);
  EXPECT_TRUE(books->Reserve(1, Tier::kGpu, 9));
  EXPECT_EQ(books->held_blocks(1), 3);
  EXPECT_TRUE(books->Reserve(1, Tier::kGpu, 12));
  EXPECT_EQ(books->held_blocks(1), 3);
  EXPECT_TRUE(books->Reserve(1, Tier::kGpu, 13));
  EXPECT_EQ(books->held_blocks(1), 4);
  EXPECT_FALSE(books->Reserve(2, Tier::kGpu, 33));
  EXPECT_EQ(books->held_blocks(2), 0);
  EXPECT_FALSE(books->tier_of(2).has_value());
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 8);
  EXPECT_TRUE(books->Reserve(2, Tier::kGpu, 32));
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 0);
  books->Release(1);
  books->Release(1);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 4);
  EXPECT_EQ(books->SlotToWrite(2, 5), books->block_table(2)[1] * 4 + 1);
}

TEST(KvBooksTest, MovesInTurnsHandOnBlocks) {
  // Each goes where the other comes from; the cpu tier has room for one only after the other has left.
  const auto books = MakeBooks(10, 4);
  ASSERT_TRUE(books->Reserve(1, Tier::kGpu, 4 * 3));
  ASSERT_TRUE(books->Reserve(2, Tier::kCpu, 4 * 4));
  const std::vector<int32_t> cpu_blocks = books->block_table(2);
  const std::vector<BlockMove> moves = ApplyMoves({{1, Tier::kCpu}, {2, Tier::kGpu}}, books.get());
  ASSERT_EQ(moves.size(), 2U);
  // The one that leaves the blocks comes first.
  EXPECT_EQ(moves[0].sequence, 2U);
  EXPECT_EQ(moves[0].to, Tier::kGpu);
  EXPECT_EQ(moves[0].source_blocks, cpu_blocks);
  EXPECT_EQ(moves[0].destination_blocks, books->block_table(2));
  EXPECT_EQ(moves[1].sequence, 1U);
  EXPECT_EQ(moves[1].destination_blocks, books->block_table(1));
  EXPECT_EQ(books->tier_of(1), Tier::kCpu);
  EXPECT_EQ(books->tier_of(2), Tier::kGpu);
  for (const Tier tier : kBothTiers) EXPECT_EQ(books->in_flight_blocks(tier), 0);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 6);
  EXPECT_EQ(books->free_blocks(Tier::kCpu), 1);
  EXPECT_TRUE(ApplyMoves({}, books.get()).empty());
}

TEST(KvBooksDeathTest, BrokenInvariants) {
  const auto books = MakeBooks(20, 20);
  ASSERT_TRUE(books->Reserve(1, Tier::kGpu, 18));
  ASSERT_TRUE(books->Reserve(3, Tier::kGpu, 4));
  EXPECT_DEATH(books->SlotToWrite(1, 20), "position 20 is not reserved");
  EXPECT_DEATH(books->SlotToWrite(7, 0), "has no blocks");
  ASSERT_NE(books->BeginMove(1, Tier::kCpu), nullptr);
  EXPECT_DEATH(books->BeginMove(1, Tier::kGpu), "cannot move");
  EXPECT_DEATH(books->Reserve(1, Tier::kGpu, 40), "is not in the gpu tier");
  books->EndMove(1);
  EXPECT_DEATH(books->EndMove(1), "does not move");
  EXPECT_DEATH(books->CancelMove(1), "does not move");
}

TEST(KvBooksDeathTest, AMoveWithoutRoom) {
  const auto books = MakeBooks(10, 2);
  ASSERT_TRUE(books->Reserve(1, Tier::kGpu, 12));
  EXPECT_DEATH(ApplyMoves({{1, Tier::kCpu}}, books.get()), "no room for 1 moves to the cpu tier");
}

// Books as naive as they can be: every number is counted anew from the tables.
class NaiveBooks {
 public:
  struct Sequence {
    Tier tier = Tier::kGpu;
    std::vector<int32_t> blocks;
    std::vector<int32_t> source;  // of a move under way, in the other tier
    bool moves = false;
    int64_t num_tokens = 0;
    int64_t source_tokens = 0;
  };

  explicit NaiveBooks(std::array<int64_t, kNumTiers> num_blocks) : num_blocks_(num_blocks) {}

  std::map<SequenceId, Sequence> sequences;

  // Of each block of a tier.
  const std::vector<int32_t>& References(Tier tier) {
    std::vector<int32_t>& counts = references_[static_cast<size_t>(tier)];
    counts.assign(static_cast<size_t>(num_blocks_[static_cast<size_t>(tier)]), 0);
    for (const auto& [id, sequence] : sequences) {
      for (const int32_t block : sequence.tier == tier ? sequence.blocks : sequence.source)
        ++counts[static_cast<size_t>(block)];
    }
    return counts;
  }
  int64_t Free(Tier tier) {
    const std::vector<int32_t>& counts = References(tier);
    return std::count(counts.begin(), counts.end(), 0);
  }

 private:
  std::array<int64_t, kNumTiers> num_blocks_;
  std::array<std::vector<int32_t>, kNumTiers> references_;
};

class RandomBooks {
 public:
  RandomBooks(int64_t gpu_blocks, int64_t cpu_blocks, uint32_t seed)
      : books_(MakeBooks(gpu_blocks, cpu_blocks)), naive_({gpu_blocks, cpu_blocks}), random_(seed) {}

  void Run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      Step(static_cast<SequenceId>(Below(kNumSequences)));
      if (::testing::Test::HasFatalFailure()) return;
      Check();
      if (::testing::Test::HasFatalFailure()) return;
    }
    // All branches were taken, often.
    for (const int count : taken_) EXPECT_GT(count, num_steps / 400);
    for (SequenceId id = 0; id < kNumSequences; ++id) books_->Release(id);
    for (const Tier tier : kBothTiers) EXPECT_EQ(books_->free_blocks(tier), books_->total_blocks(tier));
  }

 private:
  using Sequence = NaiveBooks::Sequence;
  static constexpr int64_t kNumSequences = 10;
  enum Branch { kGrown, kRefused, kReleased, kBegun, kNoRoom, kEnded, kCancelled };

  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(end)); }

  void Step(SequenceId id) {
    const auto found = naive_.sequences.find(id);
    if (found == naive_.sequences.end()) {
      return Grow(id, kBothTiers[static_cast<size_t>(Below(2))]);
    }
    Sequence& sequence = found->second;
    const int64_t choice = Below(12);
    if (choice < 4) return Grow(id, sequence.tier);
    if (choice < 6) return Release(id);
    if (!sequence.moves) return Begin(id, &sequence);
    return choice < 9 ? End(id, &sequence) : Cancel(id, &sequence);
  }

  void Grow(SequenceId id, Tier tier) {
    const auto found = naive_.sequences.find(id);
    const Sequence before = found == naive_.sequences.end() ? Sequence{.tier = tier} : found->second;
    const int64_t wanted = before.num_tokens + 1 + Below(5 * kBooksBlockSize);
    const int64_t missing = std::max<int64_t>(
        0, (wanted + kBooksBlockSize - 1) / kBooksBlockSize - static_cast<int64_t>(before.blocks.size()));
    const bool fits = missing <= naive_.Free(tier);
    ASSERT_EQ(books_->Reserve(id, tier, wanted), fits);
    ++taken_[fits ? kGrown : kRefused];
    if (!fits) return;
    Adopt(id, before, static_cast<size_t>(missing), tier);
    naive_.sequences[id].num_tokens = wanted;
  }

  // The books chose the blocks: so many behind those that were there, and free before.
  void Adopt(SequenceId id, const Sequence& before, size_t num_new, Tier tier) {
    const std::vector<int32_t>& table = books_->block_table(id);
    ASSERT_EQ(table.size(), before.blocks.size() + num_new);
    ASSERT_TRUE(std::equal(before.blocks.begin(), before.blocks.end(), table.begin()));
    const std::vector<int32_t>& references = naive_.References(tier);
    for (size_t i = before.blocks.size(); i < table.size(); ++i)
      ASSERT_EQ(references[static_cast<size_t>(table[i])], 0) << "block " << table[i];
    Sequence& sequence = naive_.sequences[id];
    sequence = before;
    sequence.blocks = table;
  }

  void Release(SequenceId id) {
    ++taken_[kReleased];
    books_->Release(id);
    naive_.sequences.erase(id);
  }

  void Begin(SequenceId id, Sequence* sequence) {
    const Tier to = OtherTier(sequence->tier);
    const bool fits = static_cast<int64_t>(sequence->blocks.size()) <= naive_.Free(to);
    const BlockMove* move = books_->BeginMove(id, to);
    ASSERT_EQ(move != nullptr, fits);
    ++taken_[fits ? kBegun : kNoRoom];
    if (!fits) return;
    ASSERT_EQ(move->sequence, id);
    ASSERT_EQ(move->to, to);
    ASSERT_EQ(move->source_blocks, sequence->blocks);
    ASSERT_EQ(move->destination_blocks, books_->block_table(id));
    const Sequence before = {.tier = to,
                             .source = sequence->blocks,
                             .moves = true,
                             .num_tokens = sequence->num_tokens,
                             .source_tokens = sequence->num_tokens};
    Adopt(id, before, sequence->blocks.size(), to);
  }

  void End(SequenceId id, Sequence* sequence) {
    books_->EndMove(id);
    ++taken_[kEnded];
    sequence->moves = false;
    sequence->source.clear();
  }

  void Cancel(SequenceId id, Sequence* sequence) {
    books_->CancelMove(id);
    ++taken_[kCancelled];
    *sequence = {.tier = OtherTier(sequence->tier),
                 .blocks = std::move(sequence->source),
                 .num_tokens = sequence->source_tokens};
  }

  void Check() {
    for (const Tier tier : kBothTiers) {
      const std::vector<int32_t>& references = naive_.References(tier);
      for (size_t block = 0; block < references.size(); ++block)
        ASSERT_EQ(books_->references(tier, static_cast<int32_t>(block)), references[block]);
      ASSERT_EQ(books_->free_blocks(tier), std::count(references.begin(), references.end(), 0));
      int64_t in_flight = 0;
      for (SequenceId id = 0; id < kNumSequences; ++id) {
        const auto found = naive_.sequences.find(id);
        if (found == naive_.sequences.end()) continue;
        const Sequence& sequence = found->second;
        if (sequence.tier != tier) {
          in_flight += static_cast<int64_t>(sequence.source.size());
          continue;
        }
        const int64_t own = std::count_if(sequence.blocks.begin(), sequence.blocks.end(), [&](int32_t block) {
          return references[static_cast<size_t>(block)] == 1;
        });
        ASSERT_EQ(books_->blocks_freed_by(id), own);
      }
      ASSERT_EQ(books_->in_flight_blocks(tier), in_flight);
    }
    for (SequenceId id = 0; id < kNumSequences; ++id) {
      const auto found = naive_.sequences.find(id);
      const bool known = found != naive_.sequences.end();
      ASSERT_EQ(books_->tier_of(id), known ? std::optional(found->second.tier) : std::nullopt);
      if (!known) {
        ASSERT_TRUE(books_->block_table(id).empty());
        continue;
      }
      ASSERT_EQ(books_->block_table(id), found->second.blocks);
      ASSERT_EQ(books_->held_blocks(id), static_cast<int64_t>(found->second.blocks.size()));
      ASSERT_EQ(books_->move_of(id) != nullptr, found->second.moves);
    }
  }

  std::unique_ptr<KvBooks> books_;
  NaiveBooks naive_;
  std::mt19937 random_;
  std::array<int, kCancelled + 1> taken_ = {};
};

class KvBooksRandomTest : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, KvBooksRandomTest, ::testing::ValuesIn(SeedsToTry(1, 20)));

// Random use of all that books can do. After every step free blocks, references, tables and blocks in flight
// are those of the naive books; at the end nothing is left over.
TEST_P(KvBooksRandomTest, AsNaiveBooks) {
  constexpr int kNumSteps = kSanitized ? 80'000 : 1'000'000;
  for (const auto& [gpu_blocks, cpu_blocks] : {std::pair(40, 56), std::pair(56, 24)}) {
    SCOPED_TRACE(gpu_blocks);
    RandomBooks(gpu_blocks, cpu_blocks, static_cast<uint32_t>(gpu_blocks) * GetParam()).Run(kNumSteps / 2);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tandem
