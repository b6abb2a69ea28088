// Moves between the tiers: how many copies they need, and random use of books and memory together.
#include "kv/kv_move_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "device/host/host_device.h"
#include "kv/kv_books.h"
#include "kv/kv_cache_options.h"
#include "kv/kv_memory.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// What head `head` of block `index` of a sequence holds in a layer: one word, repeated.
uint64_t ContentOf(uint64_t tag, int64_t layer, int64_t index, int64_t head) {
  uint64_t word = tag * 0x9e3779b97f4a7c15U + static_cast<uint64_t>(layer << 40 | index << 8 | head) + 1;
  word = (word ^ word >> 31) * 0xbf58476d1ce4e5b9U;
  return word ^ word >> 29;
}

void Fill(std::byte* head, size_t head_bytes, uint64_t word) {
  for (size_t i = 0; i < head_bytes; i += sizeof(word)) std::memcpy(head + i, &word, sizeof(word));
}

bool Holds(const std::byte* head, size_t head_bytes, uint64_t word) {
  for (size_t i = 0; i < head_bytes; i += sizeof(word)) {
    if (std::memcmp(head + i, &word, sizeof(word)) != 0) return false;
  }
  return true;
}

// Runs of blocks that are neighbours on both sides. to may go on after from has ended.
int64_t NumRuns(const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
  int64_t num_runs = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i == 0 || from[i] != from[i - 1] + 1 || to[i] != to[i - 1] + 1) ++num_runs;
  }
  return num_runs;
}

class MoveCopyTest : public ::testing::Test {
 protected:
  void MakeCache(int64_t num_kv_heads, int64_t cpu_parts, int64_t gpu_blocks, int64_t cpu_blocks) {
    const KvShape shape = {.format = KvFormat::Plain(DType::kBF16),
                           .block_size = 4,
                           .num_kv_heads = num_kv_heads,
                           .head_dim = 4};
    const KvCacheOptions options = {.num_layers = 3,
                                    .gpu = {.shape = shape, .num_blocks = gpu_blocks},
                                    .cpu = {.shape = shape, .num_blocks = cpu_blocks},
                                    .cpu_parts = cpu_parts};
    memory_ = KvMemory::Create(device_.get(), options).value();
    books_ = KvBooks::Create(shape.block_size, {gpu_blocks, cpu_blocks}).value();
  }

  // Writes what a sequence's blocks [begin, end) hold in one layer.
  void Write(const std::vector<int32_t>& blocks, Tier tier, uint64_t tag, int64_t layer, size_t begin,
             size_t end) {
    const KvLayerView view = memory_->LayerView(tier, layer);
    for (size_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < view.shape.num_kv_heads; ++head) {
        Fill(view.Head(blocks[i], head), view.shape.HeadBytes(),
             ContentOf(tag, layer, static_cast<int64_t>(i), head));
      }
    }
  }

  void WriteAllLayers(const std::vector<int32_t>& blocks, Tier tier, uint64_t tag, size_t begin) {
    for (int64_t layer = 0; layer < 3; ++layer) Write(blocks, tier, tag, layer, begin, blocks.size());
  }

  bool Intact(const std::vector<int32_t>& blocks, Tier tier, uint64_t tag) const {
    for (int64_t layer = 0; layer < 3; ++layer) {
      const KvLayerView view = memory_->LayerView(tier, layer);
      for (size_t i = 0; i < blocks.size(); ++i) {
        for (int64_t head = 0; head < view.shape.num_kv_heads; ++head) {
          if (!Holds(view.Head(blocks[i], head), view.shape.HeadBytes(),
                     ContentOf(tag, layer, static_cast<int64_t>(i), head))) {
            return false;
          }
        }
      }
    }
    return true;
  }

  // All of it at once; the old blocks are free for work behind it on the stream. False without room.
  bool MoveAtOnce(SequenceId sequence, Tier to) {
    const BlockMove* move = books_->BeginMove(sequence, to);
    if (move == nullptr) return false;
    KvMoveCopy copy(memory_.get(), *move);
    for (int64_t layer = 0; layer < copy.num_layers(); ++layer) copy.CopyLayer(layer, *ops_, *stream_);
    End(copy);
    return true;
  }

  void End(const KvMoveCopy& copy) {
    copy.CheckComplete();
    books_->EndMove(copy.move().sequence);
  }

  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::unique_ptr<Ops> ops_ = CreateHostOps();
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<KvBooks> books_;
  // After the memory: ends before the memory goes.
  std::unique_ptr<Stream> stream_ = device_->CreateStream(StreamKind::kCopy, "copy");
};

TEST_F(MoveCopyTest, NeighbouringBlocksMoveInOneCopyForEachPart) {
  for (const int64_t parts : {1, 2, 3}) {
    MakeCache(3, parts, 40, 60);
    ASSERT_TRUE(books_->Reserve(1, Tier::kGpu, 4 * 20));
    WriteAllLayers(books_->block_table(1), Tier::kGpu, 77, 0);
    const BlockMove* move = books_->BeginMove(1, Tier::kCpu);
    ASSERT_NE(move, nullptr);
    KvMoveCopy copy(memory_.get(), *move);
    EXPECT_EQ(NumRuns(move->source_blocks, books_->block_table(1)), 1);
    for (int64_t layer = 0; layer < 3; ++layer) {
      const CopyKvCount count = copy.CopyLayer(layer, *ops_, *stream_);
      EXPECT_EQ(count.num_copies, parts);
      EXPECT_EQ(count.num_bytes, static_cast<int64_t>(20 * memory_->layout(Tier::kGpu).shape.BlockBytes()));
    }
    End(copy);
    stream_->Synchronize();
    EXPECT_TRUE(Intact(books_->block_table(1), Tier::kCpu, 77)) << parts;
    // And back.
    ASSERT_TRUE(MoveAtOnce(1, Tier::kGpu));
    stream_->Synchronize();
    EXPECT_TRUE(Intact(books_->block_table(1), Tier::kGpu, 77)) << parts;
  }
}

TEST_F(MoveCopyTest, ScatteredBlocksMoveRunByRun) {
  MakeCache(2, 1, 20, 20);
  ASSERT_TRUE(books_->Reserve(9, Tier::kGpu, 4 * 20));
  const std::vector<int32_t> all = books_->block_table(9);
  books_->Release(9);
  // Blocks 0, 2, 4, ... belong to the even sequences: what is left has no neighbours.
  for (SequenceId id = 0; id < 20; ++id) ASSERT_TRUE(books_->Reserve(id, Tier::kGpu, 4));
  for (SequenceId id = 0; id < 20; ++id) {
    if (books_->block_table(id)[0] % 2 == 1) books_->Release(id);
  }
  ASSERT_TRUE(books_->Reserve(100, Tier::kGpu, 4 * 10));
  const BlockMove* move = books_->BeginMove(100, Tier::kCpu);
  ASSERT_NE(move, nullptr);
  KvMoveCopy copy(memory_.get(), *move);
  EXPECT_EQ(NumRuns(move->source_blocks, books_->block_table(100)), 10);
  EXPECT_EQ(copy.CopyLayer(0, *ops_, *stream_).num_copies, 10);
  books_->Release(100);
}

// The KV of a prompt follows its computation, layer by layer and chunk by chunk; the prompt's own attention
// goes on reading the source.
TEST_F(MoveCopyTest, ChunksOfAPromptMoveAsTheyAreComputed) {
  MakeCache(3, 2, 30, 30);
  ASSERT_TRUE(books_->Reserve(5, Tier::kGpu, 50));
  const BlockMove* move = books_->BeginMove(5, Tier::kCpu);
  ASSERT_NE(move, nullptr);
  KvMoveCopy copy(memory_.get(), *move);
  EXPECT_EQ(books_->move_of(5), move);
  EXPECT_EQ(books_->in_flight_blocks(Tier::kGpu), 13);
  // Chunks of 18 tokens do not end with a block of 4: the block they share is written, and moves, twice.
  for (int64_t start = 0; start < 50; start += 18) {
    const int64_t end = std::min<int64_t>(start + 18, 50);
    EXPECT_FALSE(copy.complete());
    for (int64_t layer = 0; layer < 3; ++layer) {
      stream_->Synchronize();
      Write(move->source_blocks, Tier::kGpu, 42, layer, static_cast<size_t>(start / 4),
            static_cast<size_t>((end + 3) / 4));
      EXPECT_EQ(copy.CopyTokens(layer, start, end, *ops_, *stream_).num_copies, 2);
    }
  }
  EXPECT_TRUE(copy.complete());
  End(copy);
  stream_->Synchronize();
  EXPECT_TRUE(Intact(books_->block_table(5), Tier::kCpu, 42));
  EXPECT_EQ(books_->move_of(5), nullptr);
  EXPECT_EQ(books_->free_blocks(Tier::kGpu), 30);
}

TEST_F(MoveCopyTest, WithoutRoomNothingChanges) {
  MakeCache(2, 1, 10, 3);
  ASSERT_TRUE(books_->Reserve(1, Tier::kGpu, 16));
  const std::vector<int32_t> before = books_->block_table(1);
  EXPECT_EQ(books_->BeginMove(1, Tier::kCpu), nullptr);
  EXPECT_FALSE(MoveAtOnce(1, Tier::kCpu));
  EXPECT_EQ(books_->tier_of(1), Tier::kGpu);
  EXPECT_EQ(books_->block_table(1), before);
  EXPECT_EQ(books_->free_blocks(Tier::kCpu), 3);
  EXPECT_EQ(books_->in_flight_blocks(Tier::kGpu), 0);
}

using MoveCopyDeathTest = MoveCopyTest;

TEST_F(MoveCopyDeathTest, BrokenOrderIsABrokenInvariant) {
  // The stream has a thread: the child must not be a copy of this process.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MakeCache(2, 1, 10, 10);
  ASSERT_TRUE(books_->Reserve(1, Tier::kGpu, 16));
  const BlockMove* move = books_->BeginMove(1, Tier::kCpu);
  ASSERT_NE(move, nullptr);
  KvMoveCopy copy(memory_.get(), *move);
  EXPECT_DEATH(books_->BeginMove(1, Tier::kGpu), "cannot move");
  EXPECT_DEATH(copy.CheckComplete(), "before all of it is copied");
  EXPECT_DEATH(copy.CopyTokens(0, 8, 16, *ops_, *stream_), "are copied after");
  EXPECT_DEATH(copy.CopyLayer(3, *ops_, *stream_), "layer 3 of 3");
}

// Random reserve, grow, move in every order of its steps, cancel, release, move. After every step no block
// has two owners and the books add up; after every move every byte is where it belongs.
class RandomUse : public MoveCopyTest {
 protected:
  struct Sequence {
    int64_t num_tokens = 0;
    int64_t num_tokens_at_move = 0;
    uint64_t tag = 0;
    std::optional<KvMoveCopy> copy;  // while it moves
  };
  static constexpr SequenceId kNumSequences = 8;

  void Run(int64_t num_kv_heads, int64_t parts, int num_steps, uint32_t seed) {
    MakeCache(num_kv_heads, parts, 30, 44);
    random_.seed(seed);
    sequences_.assign(kNumSequences, {});
    num_ended_ = num_cancelled_ = num_released_in_move_ = 0;
    for (int step = 0; step < num_steps; ++step) {
      Step(random_() % kNumSequences);
      if (HasFatalFailure()) return;
      CheckBooks();
      if (HasFatalFailure()) return;
    }
    stream_->Synchronize();
    // All branches were taken, often.
    EXPECT_GT(num_ended_, num_steps / 100);
    EXPECT_GT(num_cancelled_, num_steps / 200);
    EXPECT_GT(num_released_in_move_, num_steps / 200);
    for (SequenceId id = 0; id < kNumSequences; ++id) books_->Release(id);
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      EXPECT_EQ(books_->free_blocks(tier), books_->total_blocks(tier));
    }
  }

 private:
  void Step(SequenceId id) {
    Sequence& sequence = sequences_[id];
    const bool moves = sequence.copy.has_value();
    ASSERT_EQ(books_->move_of(id) != nullptr, moves);
    const auto tier = books_->tier_of(id);
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
        return Grow(id, tier.value_or(random_() % 2 == 0 ? Tier::kGpu : Tier::kCpu));
      case 3:
        if (random_() % 2 == 0) return;
        // What is freed may be written at once by its next owner.
        if (moves) stream_->Synchronize();
        num_released_in_move_ += moves ? 1 : 0;
        books_->Release(id);
        sequence = {};
        return;
      case 4:
        if (!moves) return;
        stream_->Synchronize();
        ++num_cancelled_;
        books_->CancelMove(id);
        sequence.copy.reset();
        sequence.num_tokens = sequence.num_tokens_at_move;
        ASSERT_EQ(books_->tier_of(id), OtherTier(*tier));
        ASSERT_TRUE(Intact(books_->block_table(id), OtherTier(*tier), sequence.tag));
        return;
      case 5:
        if (!tier || moves) return;
        return MoveWhole(id, *tier);
      default:
        if (!tier) return;
        if (moves) return Advance(id);
        const BlockMove* move = books_->BeginMove(id, OtherTier(*tier));
        if (move == nullptr) return;
        sequence.copy.emplace(memory_.get(), *move);
        sequence.num_tokens_at_move = sequence.num_tokens;
        ASSERT_EQ(books_->tier_of(id), OtherTier(*tier));
    }
  }

  void Grow(SequenceId id, Tier tier) {
    Sequence& sequence = sequences_[id];
    if (sequence.num_tokens == 0) sequence.tag = random_();
    const int64_t wanted = sequence.num_tokens + 1 + static_cast<int64_t>(random_() % 12);
    const int64_t held = books_->held_blocks(id);
    const bool fits = books_->BlocksFor(wanted) - held <= books_->free_blocks(tier);
    ASSERT_EQ(books_->Reserve(id, tier, wanted), fits);
    if (!fits) return;
    sequence.num_tokens = wanted;
    WriteAllLayers(books_->block_table(id), tier, sequence.tag, static_cast<size_t>(held));
  }

  void MoveWhole(SequenceId id, Tier from) {
    const bool fits = books_->held_blocks(id) <= books_->free_blocks(OtherTier(from));
    ASSERT_EQ(MoveAtOnce(id, OtherTier(from)), fits);
    // Also orders the reuse of the old blocks after the copies.
    stream_->Synchronize();
    if (fits) {
      ASSERT_TRUE(Intact(books_->block_table(id), OtherTier(from), sequences_[id].tag));
    }
  }

  // Some layers further, whole or in chunks; ends the move when all is copied.
  void Advance(SequenceId id) {
    KvMoveCopy& copy = *sequences_[id].copy;
    const BlockMove& move = copy.move();
    const auto num_blocks = static_cast<int64_t>(move.source_blocks.size());
    for (int64_t layer = 0; layer < copy.num_layers(); ++layer) {
      if (random_() % 4 == 0) continue;
      if (random_() % 2 == 0) {
        const CopyKvCount count = copy.CopyLayer(layer, *ops_, *stream_);
        ASSERT_EQ(count.num_copies, NumRuns(move.source_blocks, books_->block_table(id)) *
                                        memory_->layout(Tier::kCpu).parts.num_parts);
      } else {
        int64_t copied_bytes = 0;
        for (int64_t token = 0; token < 4 * num_blocks; token += 8) {
          copied_bytes +=
              copy.CopyTokens(layer, token, std::min(token + 8, 4 * num_blocks), *ops_, *stream_).num_bytes;
        }
        ASSERT_EQ(copied_bytes,
                  num_blocks * static_cast<int64_t>(memory_->layout(Tier::kGpu).shape.BlockBytes()));
      }
    }
    if (!copy.complete()) return;
    const Tier to = move.to;
    End(copy);
    sequences_[id].copy.reset();
    stream_->Synchronize();
    ++num_ended_;
    ASSERT_TRUE(Intact(books_->block_table(id), to, sequences_[id].tag));
  }

  void CheckBooks() {
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      owners_.assign(static_cast<size_t>(books_->total_blocks(tier)), 0);
      int64_t held = 0;
      int64_t in_flight = 0;
      for (SequenceId id = 0; id < kNumSequences; ++id) {
        const BlockMove* move = books_->move_of(id);
        if (books_->tier_of(id) == tier) {
          for (const int32_t block : books_->block_table(id)) ++owners_[static_cast<size_t>(block)];
          held += books_->held_blocks(id);
        }
        if (move != nullptr && move->from() == tier) {
          for (const int32_t block : move->source_blocks) ++owners_[static_cast<size_t>(block)];
          in_flight += static_cast<int64_t>(move->source_blocks.size());
        }
      }
      ASSERT_LE(*std::max_element(owners_.begin(), owners_.end()), 1);
      ASSERT_EQ(in_flight, books_->in_flight_blocks(tier));
      ASSERT_EQ(held + in_flight + books_->free_blocks(tier), books_->total_blocks(tier));
    }
  }

  std::mt19937 random_;
  std::vector<Sequence> sequences_;
  std::vector<int> owners_;
  int num_ended_ = 0;
  int num_cancelled_ = 0;
  int num_released_in_move_ = 0;
};

TEST_F(RandomUse, OnePart) {
  Run(3, 1, 35'000, 1);
}
TEST_F(RandomUse, ThreeHeadsOverTwoParts) {
  Run(3, 2, 35'000, 2);
}
TEST_F(RandomUse, ThreeParts) {
  Run(3, 3, 30'000, 3);
}
TEST_F(RandomUse, TwoEvenParts) {
  Run(4, 2, 10'000, 4);
}

}  // namespace
}  // namespace tandem
