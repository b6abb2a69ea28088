// By what a full block of the KV cache is known: a hash of its tokens and of all before them. Whoever has the
// same tokens from the beginning on, under the same salt, has the same hash, in every process with the key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/siphash.h"

namespace tandem {

struct BlockHash {
  std::array<uint64_t, 2> halves = {};
  bool operator==(const BlockHash&) const = default;
};

// 32 hexadecimal digits; empty: one that nobody can guess. Errors: kInvalidArgument.
Result<SipHashKey> MakeBlockHashKey(std::string_view hex);

// For hash tables. The bits of a BlockHash are as good as random.
struct BlockHashBits {
  size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash.halves[0]); }
};

// Any thread.
class BlockHasher {
 public:
  // block_size: tokens.
  BlockHasher(const SipHashKey& key, int64_t block_size) : key_(key), block_size_(block_size) {}

  int64_t block_size() const { return block_size_; }
  // What stands before the first block. salt: requests of different ones have nothing in common.
  BlockHash Root(std::string_view salt) const;
  // tokens: of one block.
  BlockHash Next(const BlockHash& before, std::span<const int32_t> tokens) const;
  // Of the full blocks that tokens begin with.
  std::vector<BlockHash> FullBlocks(const BlockHash& root, std::span<const int32_t> tokens) const;

 private:
  SipHashKey key_;
  int64_t block_size_;
};

}  // namespace tandem
