// The books of one tier: which blocks are free, and how many hold those that are not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Engine thread only. Hands out consecutive ascending blocks where it can: a sequence whose blocks follow
// each other is read as one stream and moves between the tiers in few copies.
//
// Free blocks are kept as maximal runs, in lists by length, so that a run is found, split and joined in
// constant time whatever the number of blocks. While there is plenty, an allocation leaves room before and
// behind itself, for sequences to grow into; later it takes the run that fits best.
//
// A block in use counts its references: one when it is allocated, one more for everyone that it is shared
// with.
class BlockPool {
 public:
  // num_blocks: at most kMaxBlocks, all free.
  explicit BlockPool(int64_t num_blocks);
  static constexpr int64_t kMaxBlocks = int64_t{1} << 30;

  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t num_free() const { return num_free_; }

  // 0: free.
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }

  // Appends count blocks to blocks, or changes nothing and returns false if fewer are free. blocks may hold
  // the blocks of a sequence already: those after its last one are taken first, if they are free.
  bool Allocate(int64_t count, std::vector<int32_t>* blocks);
  // One more reference to each. CHECKs that every block is in use.
  void Share(std::span<const int32_t> blocks);
  // One reference less to each; blocks without any are free. CHECKs that every block is in use: freeing twice
  // is a broken invariant.
  void Free(const std::vector<int32_t>& blocks);

 private:
  // One list for each length below kExactLengths, then eight for each power of two.
  static constexpr int64_t kExactLengths = 64;
  static constexpr int kNumLists = static_cast<int>(kExactLengths) + 25 * 8;
  static constexpr int kNumWords = (kNumLists + 63) / 64;

  static int ListOf(int64_t length);
  // The first list whose runs all have at least length blocks.
  static int ListFitting(int64_t length);
  bool IsFree(int64_t block) const {
    return block >= 0 && block < num_blocks() && references_[static_cast<size_t>(block)] == 0;
  }
  int32_t& length_at(int64_t block) { return run_length_[static_cast<size_t>(block)]; }
  // True if it was the last one.
  bool DropReference(int32_t block);
  // Below: runs are named by their first block.
  void AddRun(int32_t run, int32_t length);
  // Adds a run joined with its free neighbours.
  void AddFreed(int32_t run, int32_t length);
  void RemoveRun(int32_t run);
  // A run of the first list at or after `list` that has any; -1 if none has.
  int32_t FirstRunFrom(int list) const;
  // One of the longest runs. There is one.
  int32_t LongRun() const;
  // Takes count blocks out of the run, leaving its first `skip` ones free.
  void Take(int32_t run, int32_t skip, int32_t count, std::vector<int32_t>* blocks);

  std::vector<int32_t> references_;  // of each block
  int64_t num_free_ = 0;
  // Of a free run, at its first and at its last block; stale elsewhere.
  std::vector<int32_t> run_length_;
  // Neighbours in the list of a free run, at its first block; -1 at the ends.
  std::vector<int32_t> next_;
  std::vector<int32_t> previous_;
  std::array<int32_t, kNumLists> lists_{};      // the first run of each list, -1 if it is empty
  std::array<uint64_t, kNumWords> has_runs_{};  // a bit for each list
};

}  // namespace tandem
