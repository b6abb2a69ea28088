// Blocks that are known by their hash, in the books: against naive ones, and against what blocks hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "kv/kv_books.h"
#include "kv/kv_books_testing.h"

namespace tandem {
namespace {

// A letter for the tokens of each block: what a block is known by is the text up to it.
std::vector<BlockHash> Hashes(const std::string& text) {
  const BlockHasher hasher({1, 2}, 1);
  const std::vector<int32_t> tokens(text.begin(), text.end());
  return hasher.FullBlocks(hasher.Root(""), tokens);
}

// The last block of a text.
void IdentifyLast(KvBooks* books, SequenceId id, const std::string& text) {
  const std::vector<BlockHash> hashes = Hashes(text);
  books->Identify(id, std::span(hashes).last(1));
}

// A sequence with so many blocks, all computed.
void Compute(KvBooks* books, SequenceId id, Tier tier, const std::string& text) {
  books->Identify(id, Hashes(text));
  const auto num_tokens = static_cast<int64_t>(text.size()) * kBooksBlockSize;
  ASSERT_TRUE(books->Reserve(id, tier, num_tokens));
  books->Publish(id, num_tokens);
}

int64_t NumFound(KvBooks* books, const std::string& text, Tier tier) {
  constexpr SequenceId kNobody = 1000;
  books->Identify(kNobody, Hashes(text));
  const int64_t found = books->cached_prefix(kNobody, tier, std::ssize(text) * kBooksBlockSize).num_blocks;
  books->Forget(kNobody);
  return found;
}

TEST(PrefixBooksTest, WhoBeginsAlikeBeginsWithTheSameBlocks) {
  const auto books = MakeBooks(10, 10);
  Compute(books.get(), 1, Tier::kGpu, "abc");
  const std::vector<int32_t> blocks = books->block_table(1);
  books->Identify(2, Hashes("abx"));
  EXPECT_EQ(books->cached_prefix(2, Tier::kGpu, 100).num_blocks, 2);
  EXPECT_EQ(books->cached_prefix(2, Tier::kGpu, 100).num_unused, 0);
  EXPECT_EQ(books->cached_prefix(2, Tier::kGpu, 7).num_blocks, 1);
  EXPECT_EQ(books->cached_prefix(2, Tier::kCpu, 100).num_blocks, 0);
  books->Attach(2, Tier::kGpu, 8);
  EXPECT_EQ(books->block_table(2), std::vector<int32_t>(blocks.begin(), blocks.begin() + 2));
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 7);
  ASSERT_TRUE(books->Reserve(2, Tier::kGpu, 12));
  books->CheckWritable(2, 8, 12);
  EXPECT_EQ(books->blocks_freed_by(1), 1);
  books->Forget(1);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 7);
  books->Forget(2);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 10);
  EXPECT_EQ(books->known_blocks(Tier::kGpu), 3);
}

TEST(PrefixBooksTest, WhatIsToComeIsKnown) {
  const auto books = MakeBooks(10, 10);
  books->Identify(1, Hashes("abc"));
  books->Identify(2, Hashes("abx"));
  EXPECT_FALSE(books->is_coming(2, 1)) << "it only waits";
  ASSERT_TRUE(books->Reserve(1, Tier::kGpu, 12));
  EXPECT_TRUE(books->is_coming(2, 1));
  EXPECT_TRUE(books->is_coming(2, 2));
  EXPECT_FALSE(books->is_coming(2, 3));
  books->Publish(1, 6);
  EXPECT_FALSE(books->is_coming(2, 1));
  EXPECT_TRUE(books->is_coming(2, 2));
  EXPECT_EQ(ApplyMoves({{1, Tier::kCpu}}, books.get()).size(), 1U);
  EXPECT_TRUE(books->is_coming(2, 2));
  books->Abandon(1);
  EXPECT_FALSE(books->is_coming(2, 2));
  books->Release(1);
  books->Attach(1, Tier::kCpu, 4);
  EXPECT_TRUE(books->is_coming(2, 2));
  books->Release(1);
  EXPECT_FALSE(books->is_coming(2, 2));
}

TEST(PrefixBooksTest, WhoBeginsAlike) {
  const auto books = MakeBooks(10, 10);
  books->Identify(1, Hashes("abc"));
  books->Identify(2, Hashes("abxyz"));
  EXPECT_TRUE(books->begin_alike(1, 2, 1));
  EXPECT_TRUE(books->begin_alike(1, 2, 2));
  EXPECT_FALSE(books->begin_alike(1, 2, 3));
  EXPECT_FALSE(books->begin_alike(1, 2, 4));
  EXPECT_FALSE(books->begin_alike(1, 2, 0));
  EXPECT_FALSE(books->begin_alike(1, 7, 1));
}

TEST(PrefixBooksTest, WhatIsSharedLiesInTheSameBlocks) {
  const auto books = MakeBooks(20, 20);
  Compute(books.get(), 1, Tier::kCpu, "abcd");
  books->Identify(2, Hashes("abxyz"));
  books->Attach(2, Tier::kCpu, 2 * kBooksBlockSize);
  ASSERT_TRUE(books->Reserve(2, Tier::kCpu, 5 * kBooksBlockSize));
  EXPECT_EQ(books->shared_tokens(1, 2), 2 * kBooksBlockSize);
  EXPECT_EQ(books->shared_tokens(2, 1), 2 * kBooksBlockSize);
  EXPECT_EQ(books->shared_tokens(1, 1), 4 * kBooksBlockSize);
  Compute(books.get(), 3, Tier::kGpu, "abcd");
  EXPECT_EQ(books->shared_tokens(1, 3), 0) << "in another tier";
  EXPECT_EQ(books->shared_tokens(1, 4), 0) << "it holds nothing";
}

TEST(PrefixBooksTest, WhatIsComputedTwiceIsKeptOnce) {
  const auto books = MakeBooks(10, 10);
  Compute(books.get(), 1, Tier::kGpu, "ab");
  Compute(books.get(), 2, Tier::kGpu, "abc");
  EXPECT_EQ(books->block_table(2)[0], books->block_table(1)[0]);
  EXPECT_EQ(books->block_table(2)[1], books->block_table(1)[1]);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 7);
  EXPECT_EQ(books->known_blocks(Tier::kGpu), 3);
}

TEST(PrefixBooksTest, TheEndsOfWhatWasUsedLongestAgoGoFirst) {
  const auto books = MakeBooks(6, 0);
  Compute(books.get(), 1, Tier::kGpu, "abc");
  Compute(books.get(), 2, Tier::kGpu, "xyz");
  books->Forget(1);
  books->Forget(2);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 6);
  ASSERT_TRUE(books->Reserve(3, Tier::kGpu, 2 * kBooksBlockSize));
  EXPECT_EQ(NumFound(books.get(), "abc", Tier::kGpu), 1);
  EXPECT_EQ(NumFound(books.get(), "xyz", Tier::kGpu), 3);
  books->Forget(3);
  // Used again, "a" outlives the others.
  books->Identify(4, Hashes("aq"));
  books->Attach(4, Tier::kGpu, kBooksBlockSize);
  books->Forget(4);
  ASSERT_TRUE(books->Reserve(5, Tier::kGpu, 5 * kBooksBlockSize));
  EXPECT_EQ(NumFound(books.get(), "abc", Tier::kGpu), 1);
  EXPECT_EQ(NumFound(books.get(), "xyz", Tier::kGpu), 0);
}

TEST(PrefixBooksTest, AMoveLeavesWhatItHadAndCopiesOnlyWhatIsNotThere) {
  const auto books = MakeBooks(10, 10);
  Compute(books.get(), 1, Tier::kCpu, "ab");
  Compute(books.get(), 2, Tier::kGpu, "abcd");
  const std::vector<int32_t> there = books->block_table(1);
  const std::vector<BlockMove> moves = ApplyMoves({{2, Tier::kCpu}}, books.get());
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].source_blocks.size(), 2U);
  EXPECT_EQ(books->block_table(2)[0], there[0]);
  EXPECT_EQ(books->block_table(2)[1], there[1]);
  EXPECT_EQ(books->free_blocks(Tier::kCpu), 6);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 10);
  // In both tiers now.
  EXPECT_EQ(NumFound(books.get(), "abcd", Tier::kGpu), 4);
  EXPECT_EQ(NumFound(books.get(), "abcd", Tier::kCpu), 4);
  // And back nothing is copied at all.
  EXPECT_TRUE(ApplyMoves({{2, Tier::kGpu}}, books.get()).empty());
  EXPECT_EQ(books->tier_of(2), Tier::kGpu);
}

TEST(PrefixBooksTest, ForgetsAll) {
  const auto books = MakeBooks(10, 10);
  Compute(books.get(), 1, Tier::kGpu, "ab");
  Compute(books.get(), 2, Tier::kGpu, "xy");
  books->Forget(1);
  books->ForgetPrefixes();
  EXPECT_EQ(books->known_blocks(Tier::kGpu), 0);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 8);
  // What was begun before is not found later either.
  IdentifyLast(books.get(), 2, "xyz");
  ASSERT_TRUE(books->Reserve(2, Tier::kGpu, 3 * kBooksBlockSize));
  books->Publish(2, 3 * kBooksBlockSize);
  EXPECT_EQ(books->known_blocks(Tier::kGpu), 0);
  books->Forget(2);
  EXPECT_EQ(books->free_blocks(Tier::kGpu), 10);
}

TEST(PrefixBooksDeathTest, BrokenInvariants) {
  const auto books = MakeBooks(10, 10);
  Compute(books.get(), 1, Tier::kGpu, "ab");
  EXPECT_DEATH(books->SlotToWrite(1, 3), "position 3 lies in a shared block");
  EXPECT_DEATH(books->CheckWritable(1, 4, 6), "position 4 lies in a shared block");
  books->Identify(2, Hashes("abc"));
  EXPECT_DEATH(books->Attach(2, Tier::kGpu, 12), "block 2 of a prefix is not in the gpu tier");
  EXPECT_DEATH(books->Attach(2, Tier::kCpu, 4), "block 0 of a prefix is not in the cpu tier");
  EXPECT_DEATH(books->Attach(2, Tier::kGpu, 6), "is to begin with 6 tokens");
  EXPECT_DEATH(books->Attach(1, Tier::kGpu, 4), "has blocks already");
}

// What can be found in each tier, by what a listener hears alone.
class HeardPrefixes : public PrefixListener {
 public:
  void Stored(const StoredBlock& block) override {
    EXPECT_TRUE(!block.before || of(block.tier).contains(block.before->halves));
    EXPECT_TRUE(of(block.tier).insert(block.hash.halves).second);
  }
  void Copied(Tier tier, const BlockHash& hash) override {
    EXPECT_TRUE(of(OtherTier(tier)).contains(hash.halves));
    EXPECT_TRUE(of(tier).insert(hash.halves).second);
  }
  void Removed(Tier tier, const BlockHash& hash) override { EXPECT_EQ(of(tier).erase(hash.halves), 1U); }
  void Cleared() override { hashes_ = {}; }

  std::set<std::array<uint64_t, 2>>& of(Tier tier) { return hashes_[static_cast<size_t>(tier)]; }

 private:
  std::array<std::set<std::array<uint64_t, 2>>, kNumTiers> hashes_;
};

// The same rules with nothing clever: texts for hashes, lists for queues, everything counted anew. Beside it
// what is in memory: the text up to each block that was computed or copied.
class RandomPrefixes {
 public:
  RandomPrefixes(int64_t gpu_blocks, int64_t cpu_blocks, uint32_t seed)
      : books_(MakeBooks(gpu_blocks, cpu_blocks)), random_(seed) {
    for (const Tier tier : kBothTiers)
      at(tier).memory.resize(static_cast<size_t>(books_->total_blocks(tier)));
    books_->Listen(&heard_);
  }

  void Run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      Step(static_cast<SequenceId>(Below(kNumSequences)));
      Check(step % 8 == 0);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (size_t branch = 0; branch < taken_.size(); ++branch)
      EXPECT_GT(taken_[branch], branch == kNoRoomBelow ? 0 : num_steps / 2000) << branch;
    while (!sequences_.empty()) Release(sequences_.begin()->first);
    Check(true);
    for (const Tier tier : kBothTiers) {
      for (const auto& known : at(tier).known)
        EXPECT_TRUE(heard_.of(tier).contains(Hashes(known.first).back().halves));
    }
    for (const Tier tier : kBothTiers) EXPECT_EQ(books_->free_blocks(tier), books_->total_blocks(tier));
  }

 private:
  static constexpr int64_t kNumSequences = 8;
  static constexpr int64_t kMostBlocks = 8;
  enum Branch {
    kBegun,
    kAttached,
    kAttachedUnused,
    kGrown,
    kRefused,
    kReleased,
    kMoved,
    kMovedInPart,
    kNoRoom,
    kEnded,
    kCancelled,
    kGivenUp,
    kAdopted,
    kCopiedDown,
    kCopiedInPart,
    kNoRoomBelow,
    kNumBranches
  };
  struct Sequence {
    std::string text;  // a letter a block, as far as it is identified
    Tier tier = Tier::kGpu;
    int64_t num_computed = 0;  // blocks
    bool publishes = true;
    bool moves = false;
    std::vector<int32_t> blocks;  // as the books have them
    std::vector<int32_t> source;  // of a move under way
    int64_t num_published = 0;
    int64_t source_published = 0;
    int64_t source_computed = 0;
  };
  struct TierModel {
    std::map<std::string, int32_t> known;
    std::vector<std::string> unused;  // oldest first
    std::set<std::string> settled;    // of those
    std::vector<std::string> memory;  // the text up to a block; of each block
  };

  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(end)); }
  TierModel& at(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }
  static std::string Upto(const std::string& text, int64_t block) {
    return text.substr(0, static_cast<size_t>(block) + 1);
  }

  bool InUse(Tier tier, int32_t block) const {
    const auto has = [block](const std::vector<int32_t>& blocks) {
      return std::ranges::count(blocks, block) > 0;
    };
    return std::ranges::any_of(sequences_, [&](const auto& entry) {
      return has(entry.second.tier == tier ? entry.second.blocks : entry.second.source);
    });
  }
  int64_t NumFree(Tier tier) {
    int64_t num_free = 0;
    for (int32_t block = 0; block < books_->total_blocks(tier); ++block)
      num_free += InUse(tier, block) ? 0 : 1;
    return num_free;
  }
  int64_t NumKnown(Tier tier, const std::string& text, int64_t most) {
    int64_t count = 0;
    while (count < most && at(tier).known.contains(Upto(text, count))) ++count;
    return count;
  }
  int64_t NumUnused(Tier tier, const std::string& text, int64_t num_known) {
    int64_t count = 0;
    for (int64_t i = 0; i < num_known; ++i) count += std::ranges::count(at(tier).unused, Upto(text, i));
    return count;
  }

  // Room for count blocks that nobody has: what is unused goes as far as it must.
  void GiveUp(Tier tier, int64_t count, int64_t num_held = 0) {
    TierModel& model = at(tier);
    int64_t num_free = NumFree(tier) - std::ssize(model.unused) - num_held;
    for (; num_free < count; ++num_free) {
      ++taken_[kGivenUp];
      model.known.erase(model.unused.front());
      model.settled.erase(model.unused.front());
      model.unused.erase(model.unused.begin());
    }
  }
  void Use(Tier tier, const std::string& text, int64_t num_blocks) {
    for (int64_t i = 0; i < num_blocks; ++i) {
      std::erase(at(tier).unused, Upto(text, i));
      at(tier).settled.erase(Upto(text, i));
    }
  }
  // Blocks of a sequence that has just let go of them, the last first.
  void LetGo(Tier tier, const std::string& text, const std::vector<int32_t>& blocks) {
    for (int64_t i = std::ssize(blocks) - 1; i >= 0; --i) {
      const int32_t block = blocks[static_cast<size_t>(i)];
      const auto known = at(tier).known.find(Upto(text, i));
      if (known == at(tier).known.end() || known->second != block || InUse(tier, block)) continue;
      at(tier).unused.push_back(known->first);
    }
  }
  void Publish(Sequence* sequence, int64_t num_blocks) {
    if (!sequence->publishes) return;
    for (; sequence->num_published < num_blocks; ++sequence->num_published) {
      const std::string text = Upto(sequence->text, sequence->num_published);
      int32_t& block = sequence->blocks[static_cast<size_t>(sequence->num_published)];
      const auto [known, is_new] = at(sequence->tier).known.emplace(text, block);
      if (is_new || known->second == block) continue;
      ++taken_[kAdopted];
      std::erase(at(sequence->tier).unused, text);
      at(sequence->tier).settled.erase(text);
      block = known->second;
    }
  }

  void Step(SequenceId id) {
    if (Below(4000) == 0) return ForgetAll();
    if (Below(8) == 0) return CopyDown();
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return Begin(id);
    Sequence& sequence = found->second;
    const int64_t choice = Below(10);
    if (choice < 4) return Grow(id, &sequence);
    if (choice < 6) return Release(id);
    if (!sequence.moves) return BeginMove(id, &sequence);
    return choice < 9 ? EndMove(id, &sequence) : CancelMove(id, &sequence);
  }

  // Texts of few letters, so that many begin alike.
  std::string Letters(int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += Below(3) == 0 ? 'b' : 'a';
    return text;
  }

  void Begin(SequenceId id) {
    Sequence sequence{.text = Letters(1 + Below(kMostBlocks)),
                      .tier = kBothTiers[static_cast<size_t>(Below(2))]};
    books_->Identify(id, Hashes(sequence.text));
    const int64_t most = Below(std::ssize(sequence.text) + 1);
    const CachedPrefix prefix =
        books_->cached_prefix(id, sequence.tier, most * kBooksBlockSize + Below(kBooksBlockSize));
    ASSERT_EQ(prefix.num_blocks, NumKnown(sequence.tier, sequence.text, most));
    ASSERT_EQ(prefix.num_unused, NumUnused(sequence.tier, sequence.text, prefix.num_blocks));
    if (prefix.num_blocks == 0) {
      if (NumFree(sequence.tier) == 0) {
        books_->Forget(id);
        return;
      }
      GiveUp(sequence.tier, 1);
      ASSERT_TRUE(books_->Reserve(id, sequence.tier, 1));
      ++taken_[kBegun];
    } else {
      ++taken_[prefix.num_unused > 0 ? kAttachedUnused : kAttached];
      books_->Attach(id, sequence.tier, prefix.num_blocks * kBooksBlockSize);
      Use(sequence.tier, sequence.text, prefix.num_blocks);
      sequence.num_computed = sequence.num_published = prefix.num_blocks;
    }
    sequence.blocks = books_->block_table(id);
    sequences_[id] = sequence;
  }

  // Room for more, and more is computed.
  void Grow(SequenceId id, Sequence* sequence) {
    if (Below(3) == 0 && std::ssize(sequence->text) < kMostBlocks) {
      sequence->text += Letters(1);
      IdentifyLast(books_.get(), id, sequence->text);
    }
    const int64_t wanted =
        std::max<int64_t>(std::ssize(sequence->blocks), 1 + Below(std::ssize(sequence->text)));
    const int64_t missing = wanted - std::ssize(sequence->blocks);
    const bool fits = missing <= NumFree(sequence->tier);
    if (fits) GiveUp(sequence->tier, missing);
    ASSERT_EQ(books_->Reserve(id, sequence->tier, wanted * kBooksBlockSize), fits);
    ++taken_[fits ? kGrown : kRefused];
    if (!fits) return;
    const std::vector<int32_t>& table = books_->block_table(id);
    for (int64_t i = std::ssize(sequence->blocks); i < wanted; ++i)
      ASSERT_FALSE(InUse(sequence->tier, table[static_cast<size_t>(i)]));
    sequence->blocks = table;
    const int64_t computed = sequence->num_computed + Below(wanted - sequence->num_computed + 1);
    books_->CheckWritable(id, sequence->num_computed * kBooksBlockSize, computed * kBooksBlockSize);
    for (; sequence->num_computed < computed; ++sequence->num_computed) {
      const auto block = static_cast<size_t>(table[static_cast<size_t>(sequence->num_computed)]);
      at(sequence->tier).memory[block] = Upto(sequence->text, sequence->num_computed);
    }
    // Of which some tokens more, of a block that is not full, tell nothing.
    books_->Publish(id, computed * kBooksBlockSize + Below(kBooksBlockSize));
    if (!sequence->moves) Publish(sequence, computed);
  }

  void Release(SequenceId id) {
    const Sequence sequence = sequences_.at(id);
    sequences_.erase(id);
    if (sequence.moves) LetGo(OtherTier(sequence.tier), sequence.text, sequence.source);
    LetGo(sequence.tier, sequence.text, sequence.blocks);
    books_->Forget(id);
    ++taken_[kReleased];
  }

  void BeginMove(SequenceId id, Sequence* sequence) {
    const Tier to = OtherTier(sequence->tier);
    const int64_t num_known = NumKnown(to, sequence->text, sequence->num_published);
    const int64_t num_copies = std::ssize(sequence->blocks) - num_known;
    const bool fits = num_copies <= NumFree(to) - NumUnused(to, sequence->text, num_known);
    if (fits) {
      Use(to, sequence->text, num_known);
      // What is to be used is not there for others.
      sequence->source = sequence->blocks;
      sequence->blocks.clear();
      for (int64_t i = 0; i < num_known; ++i)
        sequence->blocks.push_back(at(to).known.at(Upto(sequence->text, i)));
      sequence->tier = to;
      GiveUp(to, num_copies);
    }
    const BlockMove* move = books_->BeginMove(id, to);
    ASSERT_EQ(move != nullptr, fits);
    ++taken_[!fits ? kNoRoom : num_known > 0 ? kMovedInPart : kMoved];
    if (!fits) return;
    const std::vector<int32_t>& table = books_->block_table(id);
    ASSERT_TRUE(std::equal(sequence->blocks.begin(), sequence->blocks.end(), table.begin()));
    ASSERT_EQ(std::ssize(move->source_blocks), num_copies);
    ASSERT_TRUE(std::ranges::equal(move->source_blocks,
                                   std::span(sequence->source).last(move->source_blocks.size())));
    ASSERT_TRUE(
        std::ranges::equal(move->destination_blocks, std::span(table).last(move->source_blocks.size())));
    for (size_t i = 0; i < move->source_blocks.size(); ++i) {
      at(to).memory[static_cast<size_t>(move->destination_blocks[i])] =
          at(move->from()).memory[static_cast<size_t>(move->source_blocks[i])];
    }
    sequence->moves = true;
    sequence->blocks = table;
    sequence->source_published = std::exchange(sequence->num_published, num_known);
    sequence->source_computed = sequence->num_computed;
  }

  void EndMove(SequenceId id, Sequence* sequence) {
    ++taken_[kEnded];
    sequence->moves = false;
    const std::vector<int32_t> left = std::exchange(sequence->source, {});
    LetGo(OtherTier(sequence->tier), sequence->text, left);
    Publish(sequence, sequence->source_published);
    books_->EndMove(id);
  }

  void CancelMove(SequenceId id, Sequence* sequence) {
    ++taken_[kCancelled];
    const Tier there = sequence->tier;
    const std::vector<int32_t> left = std::exchange(sequence->blocks, std::exchange(sequence->source, {}));
    sequence->moves = false;
    sequence->tier = OtherTier(there);
    sequence->num_published = sequence->source_published;
    sequence->num_computed = sequence->source_computed;
    LetGo(there, sequence->text, left);
    books_->CancelMove(id);
  }

  void CopyDown() {
    TierModel& gpu = at(Tier::kGpu);
    TierModel& cpu = at(Tier::kCpu);
    const int64_t margin = Below(books_->total_blocks(Tier::kGpu));
    int64_t budget = Below(2 * kMostBlocks);
    const int64_t one_in = 1 + Below(2);
    const BlockMove copies = books_->CopyUnused({.margin = margin, .max_blocks = budget, .one_in = one_in});
    ASSERT_EQ(copies.source_blocks.size(), copies.destination_blocks.size());
    size_t next = 0;
    while (NumFree(Tier::kGpu) - std::ssize(gpu.unused) + std::ssize(gpu.settled) < margin) {
      const auto oldest =
          std::ranges::find_if(gpu.unused, [&](const auto& text) { return !gpu.settled.contains(text); });
      if (oldest == gpu.unused.end()) break;
      const std::string text = *oldest;
      if (Hashes(text.substr(0, 1))[0].halves[1] % static_cast<uint64_t>(one_in) != 0) {
        gpu.settled.insert(text);
        continue;
      }
      const int64_t length = std::ssize(text);
      const int64_t num_known = NumKnown(Tier::kCpu, text, length);
      Use(Tier::kCpu, text, num_known);
      int64_t num_held = 0;  // by nobody but the one that copies
      for (int64_t i = 0; i < num_known; ++i)
        num_held += InUse(Tier::kCpu, cpu.known.at(Upto(text, i))) ? 0 : 1;
      const int64_t room = NumFree(Tier::kCpu) - num_held;
      const int64_t num_copies = std::min({length - num_known, budget, room});
      GiveUp(Tier::kCpu, num_copies, num_held);
      budget -= num_copies;
      for (int64_t i = num_known; i < num_known + num_copies; ++i, ++next) {
        ASSERT_LT(next, copies.source_blocks.size());
        const std::string upto = Upto(text, i);
        ASSERT_EQ(copies.source_blocks[next], gpu.known.at(upto));
        const int32_t block = copies.destination_blocks[next];
        ASSERT_FALSE(InUse(Tier::kCpu, block));
        cpu.known[upto] = block;
        cpu.memory[static_cast<size_t>(block)] = gpu.memory[static_cast<size_t>(copies.source_blocks[next])];
      }
      for (int64_t i = num_known + num_copies - 1; i >= 0; --i) {
        if (!InUse(Tier::kCpu, cpu.known.at(Upto(text, i)))) cpu.unused.push_back(Upto(text, i));
      }
      const int64_t num_left = length - num_known - num_copies;
      ++taken_[num_left == 0 ? kCopiedDown : kCopiedInPart];
      const bool no_room = NumFree(Tier::kCpu) < num_left;
      if (no_room) ++taken_[kNoRoomBelow];
      if (num_left == 0 || no_room) gpu.settled.insert(text);
      if (num_left > 0) break;
    }
    ASSERT_EQ(next, copies.source_blocks.size());
  }

  void ForgetAll() {
    books_->ForgetPrefixes();
    for (const Tier tier : kBothTiers) {
      at(tier).known.clear();
      at(tier).unused.clear();
      at(tier).settled.clear();
    }
    for (auto& [id, sequence] : sequences_) {
      sequence.publishes = false;
      sequence.num_published = sequence.source_published = 0;
    }
  }

  void Check(bool all) {
    for (const auto& [id, sequence] : sequences_) {
      ASSERT_EQ(books_->block_table(id), sequence.blocks);
      ASSERT_EQ(books_->tier_of(id), sequence.tier);
      // Whatever was computed is still there.
      for (int64_t i = 0; i < sequence.num_computed; ++i) {
        const auto block = static_cast<size_t>(sequence.blocks[static_cast<size_t>(i)]);
        ASSERT_EQ(at(sequence.tier).memory[block], Upto(sequence.text, i))
            << "sequence " << id << " block " << i;
      }
    }
    if (!all) return;
    for (const auto& each : sequences_) {
      const Sequence& sequence = each.second;
      for (int64_t i = 0; i < std::ssize(sequence.text); ++i) {
        const bool coming = std::ranges::any_of(sequences_, [&](const auto& entry) {
          const Sequence& other = entry.second;
          const int64_t published = other.moves ? other.source_published : other.num_published;
          return other.publishes && i >= published && i < std::ssize(other.text) &&
                 Upto(other.text, i) == Upto(sequence.text, i);
        });
        ASSERT_EQ(books_->is_coming(each.first, i + 1), coming);
      }
    }
    for (const Tier tier : kBothTiers) {
      ASSERT_EQ(books_->free_blocks(tier), NumFree(tier));
      ASSERT_EQ(books_->known_blocks(tier), std::ssize(at(tier).known));
      ASSERT_EQ(heard_.of(tier).size(), at(tier).known.size());
      for (const auto& [text, block] : at(tier).known) {
        ASSERT_EQ(at(tier).memory[static_cast<size_t>(block)], text);
        ASSERT_EQ(std::ranges::count(at(tier).unused, text), InUse(tier, block) ? 0 : 1);
        // Whatever it follows is known too.
        ASSERT_TRUE(text.size() == 1 || at(tier).known.contains(text.substr(0, text.size() - 1)));
      }
    }
  }

  HeardPrefixes heard_;
  std::unique_ptr<KvBooks> books_;
  std::map<SequenceId, Sequence> sequences_;
  std::array<TierModel, kNumTiers> tiers_;
  std::mt19937 random_;
  std::array<int, kNumBranches> taken_ = {};
};

class PrefixBooksRandomTest : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, PrefixBooksRandomTest, ::testing::ValuesIn(SeedsToTry(1, 20)));

TEST_P(PrefixBooksRandomTest, AsNaivePrefixes) {
  constexpr int kNumSteps = kSanitized ? 60'000 : 1'000'000;
  for (const auto& [gpu_blocks, cpu_blocks] : {std::pair(24, 14), std::pair(40, 20)}) {
    SCOPED_TRACE(gpu_blocks);
    RandomPrefixes(gpu_blocks, cpu_blocks, static_cast<uint32_t>(gpu_blocks) * GetParam()).Run(kNumSteps / 2);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tandem
