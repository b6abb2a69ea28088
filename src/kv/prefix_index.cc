#include "kv/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

int32_t PrefixIndex::Find(const BlockHash& hash) const {
  const auto found = blocks_.find(hash);
  return found == blocks_.end() ? -1 : found->second;
}

int64_t PrefixIndex::NumKnown(std::span<const BlockHash> chain) const {
  const auto known = [this](const BlockHash& hash) { return blocks_.contains(hash); };
  return std::partition_point(chain.begin(), chain.end(), known) - chain.begin();
}

int64_t PrefixIndex::NumUnused(std::span<const BlockHash> chain) const {
  const auto used = [this](const BlockHash& hash) { return !IsUnused(Find(hash)); };
  return chain.end() - std::partition_point(chain.begin(), chain.end(), used);
}

const BlockHash& PrefixIndex::HashOf(int32_t block) const {
  TANDEM_CHECK(Knows(block), "block {} is not known", block);
  return entry(block).hash;
}

void PrefixIndex::Add(const BlockHash& hash, int32_t block, int32_t before) {
  TANDEM_CHECK(!Knows(block), "block {} is known already", block);
  TANDEM_CHECK(before < 0 || Knows(before), "block {} follows block {}, which is not known", block, before);
  TANDEM_CHECK(blocks_.emplace(hash, block).second, "block {} has a hash that another one is known by",
               block);
  if (static_cast<size_t>(block) >= entries_.size()) entries_.resize(static_cast<size_t>(block) + 1);
  entry(block) = {.hash = hash, .known = true, .before = before};
}

void PrefixIndex::Unlink(int32_t block) {
  Entry& gone = entry(block);
  if (block == next_to_settle_) next_to_settle_ = gone.newer;
  if (gone.settled) --num_settled_;
  (gone.older < 0 ? oldest_ : entry(gone.older).newer) = gone.newer;
  (gone.newer < 0 ? newest_ : entry(gone.newer).older) = gone.older;
  gone.older = gone.newer = -1;
  gone.unused = gone.settled = false;
  --num_unused_;
}

void PrefixIndex::Use(int32_t block) {
  TANDEM_CHECK(Knows(block), "block {} is not known", block);
  if (IsUnused(block)) Unlink(block);
}

void PrefixIndex::LetGo(int32_t block) {
  TANDEM_CHECK(Knows(block) && !IsUnused(block), "block {} is not known, or not used", block);
  Entry& unused = entry(block);
  unused.unused = true;
  unused.older = newest_;
  (newest_ < 0 ? oldest_ : entry(newest_).newer) = block;
  newest_ = block;
  ++num_unused_;
  if (next_to_settle_ < 0) next_to_settle_ = block;
}

void PrefixIndex::Settle() {
  TANDEM_CHECK(next_to_settle_ >= 0, "every unused block is settled");
  Entry& settled = entry(next_to_settle_);
  settled.settled = true;
  ++num_settled_;
  next_to_settle_ = settled.newer;
}

int32_t PrefixIndex::GiveUpOldest() {
  const int32_t block = oldest_;
  TANDEM_CHECK(block >= 0, "every known block is used");
  Unlink(block);
  blocks_.erase(entry(block).hash);
  entry(block).known = false;
  return block;
}

std::vector<int32_t> PrefixIndex::Clear() {
  std::vector<int32_t> blocks;
  for (const auto& [hash, block] : blocks_) blocks.push_back(block);
  std::ranges::sort(blocks);
  *this = {};
  return blocks;
}

}  // namespace tandem
