#include "base/block_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <vector>

namespace tandem {
namespace {

constexpr SipHashKey kKey = {7, 8};

std::vector<int32_t> Tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

TEST(BlockHashTest, Keys) {
  EXPECT_EQ(MakeBlockHashKey("000102030405060708090A0b0c0d0e0f").value(),
            (SipHashKey{0x0001020304050607, 0x08090a0b0c0d0e0f}));
  EXPECT_NE(MakeBlockHashKey("").value(), MakeBlockHashKey("").value());
  EXPECT_EQ(MakeBlockHashKey("12").error().message,
            "a prefix cache key is 32 hexadecimal digits, not 2 characters");
  EXPECT_EQ(MakeBlockHashKey("00010203040506070809 a0b0c0d0e0f").error().message,
            "a prefix cache key is 32 hexadecimal digits, not 32 characters with others among them");
}

TEST(BlockHashTest, OfFullBlocksOnly) {
  const BlockHasher hasher(kKey, 4);
  const BlockHash root = hasher.Root("");
  EXPECT_TRUE(hasher.FullBlocks(root, Tokens(3)).empty());
  EXPECT_EQ(hasher.FullBlocks(root, Tokens(4)).size(), 1U);
  EXPECT_EQ(hasher.FullBlocks(root, Tokens(11)).size(), 2U);
  EXPECT_EQ(hasher.FullBlocks(root, Tokens(12)).size(), 3U);
}

TEST(BlockHashTest, GrowsAsABeginning) {
  const BlockHasher hasher(kKey, 4);
  const BlockHash root = hasher.Root("");
  const std::vector<BlockHash> few = hasher.FullBlocks(root, Tokens(8));
  const std::vector<BlockHash> more = hasher.FullBlocks(root, Tokens(16));
  EXPECT_EQ(few, std::vector<BlockHash>(more.begin(), more.begin() + 2));
  EXPECT_EQ(hasher.Next(few.back(), std::vector<int32_t>{108, 109, 110, 111}), more[2]);
}

TEST(BlockHashTest, DependsOnEverything) {
  const BlockHasher hasher(kKey, 4);
  std::vector<std::vector<BlockHash>> chains = {
      hasher.FullBlocks(hasher.Root(""), Tokens(12)), hasher.FullBlocks(hasher.Root("salt"), Tokens(12)),
      BlockHasher({7, 9}, 4).FullBlocks(hasher.Root(""), Tokens(12)),
      BlockHasher({8, 8}, 4).FullBlocks(hasher.Root(""), Tokens(12))};
  for (size_t changed = 0; changed < 4; ++changed) {
    std::vector<int32_t> tokens = Tokens(12);
    tokens[changed] += 1 << (8 * changed);
    chains.push_back(hasher.FullBlocks(hasher.Root(""), tokens));
  }
  // The same tokens at another place: a block is all that comes before it.
  std::vector<int32_t> swapped = Tokens(12);
  std::rotate(swapped.begin(), swapped.begin() + 4, swapped.end());
  chains.push_back(hasher.FullBlocks(hasher.Root(""), swapped));
  std::unordered_set<BlockHash, BlockHashBits> all;
  for (const std::vector<BlockHash>& chain : chains) all.insert(chain.begin(), chain.end());
  EXPECT_EQ(all.size(), chains.size() * 3);
}

}  // namespace
}  // namespace tandem
