#include "simulate/played_books.h"

#include <algorithm>

namespace tandem {

std::optional<Holding> SimulatedBooks::holding_of(SequenceId sequence) const {
  const auto found = held_.find(sequence);
  return found == held_.end() ? std::nullopt : std::optional(found->second);
}

bool SimulatedBooks::Reserve(SequenceId sequence, Tier tier, int64_t num_blocks) {
  Holding holding{.tier = tier};
  if (const auto found = held_.find(sequence); found != held_.end()) holding = found->second;
  const int64_t missing = std::max<int64_t>(0, num_blocks - holding.num_blocks);
  int64_t& free = free_[static_cast<size_t>(tier)];
  if (holding.tier != tier || missing > free) return false;
  free -= missing;
  held_[sequence] = {tier, holding.num_blocks + missing};
  return true;
}

bool SimulatedBooks::MoveTo(SequenceId sequence, Tier to) {
  const auto found = held_.find(sequence);
  if (found == held_.end() || found->second.tier == to) return false;
  const int64_t blocks = found->second.num_blocks;
  if (blocks > free_blocks(to)) return false;
  Release(sequence);
  return Reserve(sequence, to, blocks);
}

void SimulatedBooks::Release(SequenceId sequence) {
  const auto found = held_.find(sequence);
  if (found == held_.end()) return;
  free_[static_cast<size_t>(found->second.tier)] += found->second.num_blocks;
  held_.erase(found);
}

bool CachingBooks::Reserve(SequenceId sequence, Tier tier, int64_t num_blocks) {
  if (books_->tier_of(sequence).value_or(tier) != tier) return false;
  return books_->Reserve(sequence, tier, num_blocks * block_size());
}

bool CachingBooks::MoveTo(SequenceId sequence, Tier to) {
  if (books_->tier_of(sequence).value_or(to) == to || books_->BeginMove(sequence, to) == nullptr)
    return false;
  books_->EndMove(sequence);
  return true;
}

bool CachingBooks::Attach(const AttachedPrefix& prefix) {
  const int64_t num_known = books_->cached_prefix(prefix.sequence, prefix.tier, prefix.num_tokens).num_blocks;
  if (books_->tier_of(prefix.sequence) || num_known * block_size() < prefix.num_tokens) return false;
  books_->Attach(prefix.sequence, prefix.tier, prefix.num_tokens);
  return true;
}

int64_t CachingBooks::CopyUnused(const CopyDown& wanted) {
  return static_cast<int64_t>(books_->CopyUnused(wanted).source_blocks.size());
}

}  // namespace tandem
