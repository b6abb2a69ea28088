// The books of one tier: which blocks are free.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Engine thread only. Hands out the most recently freed blocks first: they are warm.
class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(in_use_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

  // Appends count blocks to blocks, or changes nothing and returns false if fewer are free.
  bool Allocate(int64_t count, std::vector<int32_t>* blocks);
  // CHECKs that every block is in use: freeing twice is a broken invariant.
  void Free(const std::vector<int32_t>& blocks);

 private:
  std::vector<int32_t> free_;
  std::vector<bool> in_use_;
};

}  // namespace tandem
