// KvBooks' part that knows blocks by their hash.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/largest_that.h"
#include "kv/kv_books.h"

namespace tandem {

void KvBooks::Identify(SequenceId sequence, std::span<const BlockHash> hashes) {
  std::vector<BlockHash>& chain = chains_[sequence];
  chain.insert(chain.end(), hashes.begin(), hashes.end());
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || !found->second.publishes) return;
  Expect(chain, std::ssize(chain) - std::ssize(hashes), std::ssize(chain));
}

void KvBooks::Expect(std::span<const BlockHash> chain, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) ++expected_[chain[static_cast<size_t>(i)]];
}

void KvBooks::ExpectNoMore(std::span<const BlockHash> chain, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const auto found = expected_.find(chain[static_cast<size_t>(i)]);
    TANDEM_CHECK(found != expected_.end(), "nobody was to compute block {}", i);
    if (--found->second == 0) expected_.erase(found);
  }
}

void KvBooks::ExpectNoMore(SequenceId sequence, const Table& table) {
  if (!table.publishes) return;
  const int64_t num_published = table.leaving ? table.leaving->num_published : table.num_published;
  ExpectNoMore(ChainOf(sequence), num_published, num_identified(sequence));
}

void KvBooks::Abandon(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  ExpectNoMore(sequence, found->second);
  found->second.publishes = false;
}

bool KvBooks::is_coming(SequenceId sequence, int64_t num_blocks) const {
  const auto chain = ChainOf(sequence);
  return num_blocks >= 1 && num_blocks <= std::ssize(chain) &&
         expected_.contains(chain[static_cast<size_t>(num_blocks) - 1]);
}

std::span<const BlockHash> KvBooks::ChainOf(SequenceId sequence) const {
  const auto found = chains_.find(sequence);
  return found == chains_.end() ? std::span<const BlockHash>() : found->second;
}

int64_t KvBooks::num_identified(SequenceId sequence) const {
  return std::ssize(ChainOf(sequence));
}

std::optional<BlockHash> KvBooks::last_hash(SequenceId sequence) const {
  const auto chain = ChainOf(sequence);
  return chain.empty() ? std::nullopt : std::optional(chain.back());
}

void KvBooks::Forget(SequenceId sequence) {
  Release(sequence);
  chains_.erase(sequence);
}

void KvBooks::Publish(SequenceId sequence, int64_t num_computed) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || found->second.leaving) return;
  const auto chain = ChainOf(sequence);
  const int64_t num_blocks = std::min(num_computed / block_size_, std::ssize(chain));
  if (found->second.publishes) ExpectNoMore(chain, found->second.num_published, num_blocks);
  PublishBlocks(sequence, num_blocks, &found->second);
}

void KvBooks::PublishBlocks(SequenceId sequence, int64_t num_blocks, Table* table) {
  if (!table->publishes) return;
  const auto chain = ChainOf(sequence);
  TierBooks& of_tier = books(table->tier);
  for (int64_t& i = table->num_published; i < num_blocks; ++i) {
    int32_t& block = table->blocks[static_cast<size_t>(i)];
    const BlockHash& hash = chain[static_cast<size_t>(i)];
    const int32_t known = of_tier.prefixes.Find(hash);
    if (known < 0) {
      of_tier.pool.Share({&block, 1});
      of_tier.prefixes.Add(hash, block, i == 0 ? -1 : table->blocks[static_cast<size_t>(i) - 1]);
      if (listener_ == nullptr) continue;
      listener_->Stored({.tier = table->tier,
                         .hash = hash,
                         .before = i == 0 ? std::nullopt : std::optional(chain[static_cast<size_t>(i) - 1]),
                         .sequence = sequence,
                         .index = i});
    } else if (known != block) {
      of_tier.Use({&known, 1});
      of_tier.Free({block});
      block = known;
    }
  }
}

CachedPrefix KvBooks::cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const {
  const auto chain = ChainOf(sequence);
  const auto most = static_cast<size_t>(std::min(max_tokens / block_size_, std::ssize(chain)));
  const PrefixIndex& prefixes = books(tier).prefixes;
  CachedPrefix prefix{.num_blocks = prefixes.NumKnown(chain.first(most))};
  prefix.num_unused = prefixes.NumUnused(chain.first(static_cast<size_t>(prefix.num_blocks)));
  return prefix;
}

bool KvBooks::begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const {
  const auto of_a = ChainOf(a);
  const auto of_b = ChainOf(b);
  if (num_blocks < 1 || num_blocks > std::min(std::ssize(of_a), std::ssize(of_b))) return false;
  const auto last = static_cast<size_t>(num_blocks) - 1;
  return of_a[last] == of_b[last];
}

// Equal blocks are the beginning of both tables: a block is shared only behind all that is before it.
int64_t KvBooks::shared_tokens(SequenceId a, SequenceId b) const {
  const auto of_a = tables_.find(a);
  const auto of_b = tables_.find(b);
  if (of_a == tables_.end() || of_b == tables_.end() || of_a->second.tier != of_b->second.tier) return 0;
  const std::vector<int32_t>& blocks = of_a->second.blocks;
  const std::vector<int32_t>& others = of_b->second.blocks;
  const int64_t most = std::min(std::ssize(blocks), std::ssize(others));
  return block_size_ * LargestThat(most, [&](int64_t n) {
           return blocks[static_cast<size_t>(n) - 1] == others[static_cast<size_t>(n) - 1];
         });
}

std::vector<int32_t> KvBooks::KnownBlocks(Tier tier, std::span<const BlockHash> chain) const {
  std::vector<int32_t> blocks;
  blocks.reserve(chain.size());
  for (const BlockHash& hash : chain) {
    blocks.push_back(books(tier).prefixes.Find(hash));
    TANDEM_CHECK(blocks.back() >= 0, "block {} of a prefix is not in the {} tier", blocks.size() - 1,
                 TierName(tier));
  }
  return blocks;
}

void KvBooks::Attach(SequenceId sequence, Tier tier, int64_t num_tokens) {
  const auto chain = ChainOf(sequence);
  TANDEM_CHECK(!tables_.contains(sequence), "sequence {} has blocks already", sequence);
  const int64_t count = num_tokens / block_size_;
  TANDEM_CHECK(count > 0 && num_tokens % block_size_ == 0 && count <= std::ssize(chain),
               "sequence {} is to begin with {} tokens: blocks of {}, {} identified", sequence, num_tokens,
               block_size_, chain.size());
  std::vector<int32_t> blocks = KnownBlocks(tier, chain.first(static_cast<size_t>(count)));
  books(tier).Use(blocks);
  tables_.emplace(sequence, Table{.tier = tier, .blocks = std::move(blocks), .num_published = count});
  Expect(chain, count, std::ssize(chain));
}

BlockMove KvBooks::CopyUnused(const CopyDown& wanted) {
  TierBooks& gpu = books(Tier::kGpu);
  BlockMove copies{.to = Tier::kCpu};
  while (gpu.pool.num_free() + gpu.prefixes.num_settled() < wanted.margin) {
    const int32_t oldest = gpu.prefixes.NextToSettle();
    if (oldest < 0) break;
    std::vector<int32_t> chain;
    for (int32_t block = oldest; block >= 0; block = gpu.prefixes.Before(block)) chain.push_back(block);
    std::ranges::reverse(chain);
    const uint64_t draw = gpu.prefixes.HashOf(chain.front()).halves[1];
    if (draw % static_cast<uint64_t>(wanted.one_in) != 0) {
      gpu.prefixes.Settle();
      continue;
    }
    const int64_t num_left =
        CopyChainDown(chain, wanted.max_blocks - std::ssize(copies.source_blocks), &copies);
    // What there is no room for is not asked for again.
    if (num_left == 0 || free_blocks(Tier::kCpu) < num_left) gpu.prefixes.Settle();
    if (num_left > 0) break;
  }
  return copies;
}

int64_t KvBooks::CopyChainDown(std::span<const int32_t> chain, int64_t max_blocks, BlockMove* copies) {
  const PrefixIndex& gpu = books(Tier::kGpu).prefixes;
  TierBooks& cpu = books(Tier::kCpu);
  // What is there already is used while more is added behind it.
  std::vector<int32_t> blocks;
  for (const int32_t block : chain) {
    const int32_t known = cpu.prefixes.Find(gpu.HashOf(block));
    if (known < 0) break;
    blocks.push_back(known);
  }
  cpu.Use(blocks);
  const size_t num_known = blocks.size();
  const int64_t num_missing = std::ssize(chain) - std::ssize(blocks);
  const int64_t num_copies = std::min({num_missing, max_blocks, free_blocks(Tier::kCpu)});
  Allocate(Tier::kCpu, num_copies, &blocks);
  for (size_t i = num_known; i < blocks.size(); ++i) {
    cpu.pool.Share({&blocks[i], 1});
    cpu.prefixes.Add(gpu.HashOf(chain[i]), blocks[i], i == 0 ? -1 : blocks[i - 1]);
    if (listener_ != nullptr) listener_->Copied(Tier::kCpu, gpu.HashOf(chain[i]));
    copies->source_blocks.push_back(chain[i]);
    copies->destination_blocks.push_back(blocks[i]);
  }
  cpu.Free(blocks);
  return num_missing - num_copies;
}

void KvBooks::ForgetPrefixes() {
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    const std::vector<int32_t> known = books(tier).prefixes.Clear();
    books(tier).pool.Free(known);
  }
  for (auto& [sequence, table] : tables_) {
    table.publishes = false;
    table.num_published = 0;
    if (table.leaving) table.leaving->num_published = 0;
  }
  expected_.clear();
  if (listener_ != nullptr) listener_->Cleared();
}

}  // namespace tandem
