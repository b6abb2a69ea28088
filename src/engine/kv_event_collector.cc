#include "engine/kv_event_collector.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

// Outside a block is known by so much of its hash: routers take 64 bits.
uint64_t PublicHash(const BlockHash& hash) {
  return hash.halves[0];
}

std::vector<int32_t> TokensOf(const Request& request, int64_t begin, int64_t count) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (int64_t i = begin; i < begin + count; ++i) tokens.push_back(request.TokenAt(i));
  return tokens;
}

}  // namespace

void KvEventCollector::Stored(const StoredBlock& stored) {
  const auto [found, is_new] = known_.try_emplace(stored.hash);
  Block& block = found->second;
  if (is_new) {
    const Request& request = find_request_(stored.sequence);
    block.before = stored.before;
    block.token_ids = TokensOf(request, stored.index * block_size_, block_size_);
    if (!stored.before) block.cache_salt = request.cache_salt;
  }
  block.in_tier[static_cast<size_t>(stored.tier)] = true;
  TellStored(stored.tier, stored.hash, block);
}

void KvEventCollector::Copied(Tier tier, const BlockHash& hash) {
  const auto found = known_.find(hash);
  TANDEM_CHECK(found != known_.end(), "a block of the {} tier is copied and known nowhere", TierName(tier));
  found->second.in_tier[static_cast<size_t>(tier)] = true;
  TellStored(tier, hash, found->second);
}

void KvEventCollector::TellStored(Tier tier, const BlockHash& hash, const Block& block) {
  const bool goes_on = !events_.empty() && events_.back().kind == KvEvent::Kind::kStored &&
                       events_.back().tier == tier && block.before &&
                       events_.back().block_hashes.back() == PublicHash(*block.before);
  if (!goes_on) {
    events_.push_back({.kind = KvEvent::Kind::kStored,
                       .tier = tier,
                       .block_size = block_size_,
                       .cache_salt = block.cache_salt});
    if (block.before) events_.back().parent_block_hash = PublicHash(*block.before);
  }
  KvEvent& event = events_.back();
  event.block_hashes.push_back(PublicHash(hash));
  event.token_ids.insert(event.token_ids.end(), block.token_ids.begin(), block.token_ids.end());
}

void KvEventCollector::Removed(Tier tier, const BlockHash& hash) {
  if (events_.empty() || events_.back().kind != KvEvent::Kind::kRemoved || events_.back().tier != tier)
    events_.push_back({.kind = KvEvent::Kind::kRemoved, .tier = tier});
  events_.back().block_hashes.push_back(PublicHash(hash));
  const auto found = known_.find(hash);
  TANDEM_CHECK(found != known_.end(), "a block of the {} tier is given up and known nowhere", TierName(tier));
  found->second.in_tier[static_cast<size_t>(tier)] = false;
  if (std::ranges::none_of(found->second.in_tier, std::identity())) known_.erase(found);
}

void KvEventCollector::Cleared() {
  known_.clear();
  events_.push_back({.kind = KvEvent::Kind::kCleared});
}

KvEvents KvEventCollector::Take() {
  return std::exchange(events_, {});
}

}  // namespace tandem
