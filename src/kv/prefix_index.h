// The full blocks of one tier that are known by their hash (base/block_hash.h), and the order in which those
// that nobody uses are given up.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_hash.h"

namespace tandem {

// Engine thread only. Knows nothing of references: its owner (KvBooks) says which blocks are used.
//
// A block is known only where all before it are: whoever uses one uses those before it too, and lets them go
// after it, so what is given up is always the end of a chain, the one used longest ago first.
class PrefixIndex {
 public:
  int64_t num_known() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_unused() const { return num_unused_; }

  bool Knows(int32_t block) const {
    return static_cast<size_t>(block) < entries_.size() && entry(block).known;
  }
  bool IsUnused(int32_t block) const { return Knows(block) && entry(block).unused; }
  // The block; -1: there is none.
  int32_t Find(const BlockHash& hash) const;
  // How many of the hashes of a chain, from its first on, have a block.
  int64_t NumKnown(std::span<const BlockHash> chain) const;
  // How many blocks of a chain that is known nobody uses: the last ones of it.
  int64_t NumUnused(std::span<const BlockHash> chain) const;
  // CHECKs that the block is known.
  const BlockHash& HashOf(int32_t block) const;

  // A block in use, full, behind `before` (-1: it is the first of a chain). CHECKs that `before` is known and
  // that neither the block nor its hash is.
  void Add(const BlockHash& hash, int32_t block, int32_t before);
  // The block before it; -1: none.
  int32_t Before(int32_t block) const { return entry(block).before; }
  // Somebody uses a known block; no matter if others do.
  void Use(int32_t block);
  // Nobody uses a known block any more. It is given up after all that were let go before it.
  void LetGo(int32_t block);
  // The block that nobody has used for longest; -1: every known block is used.
  int32_t oldest_unused() const { return oldest_; }
  // That one, and forgets it. CHECKs that there is one.
  int32_t GiveUpOldest();

  // Unused blocks from the oldest on are settled one after the other: it has been seen to what becomes of
  // their content. num_settled: those that have been. NextToSettle: -1: all are.
  int64_t num_settled() const { return num_settled_; }
  int32_t NextToSettle() const { return next_to_settle_; }
  void Settle();

  // Forgets all; returns the blocks.
  std::vector<int32_t> Clear();

 private:
  struct Entry {
    BlockHash hash;
    bool known = false;
    bool unused = false;
    bool settled = false;
    int32_t before = -1;
    // Neighbours among the unused, -1 at the ends.
    int32_t older = -1;
    int32_t newer = -1;
  };
  const Entry& entry(int32_t block) const { return entries_[static_cast<size_t>(block)]; }
  Entry& entry(int32_t block) { return entries_[static_cast<size_t>(block)]; }
  void Unlink(int32_t block);

  std::vector<Entry> entries_;  // of each block up to the last that was ever known
  std::unordered_map<BlockHash, int32_t, BlockHashBits> blocks_;
  int64_t num_unused_ = 0;
  int64_t num_settled_ = 0;
  int32_t next_to_settle_ = -1;
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
};

}  // namespace tandem
