// The books of a simulation: blocks as its plans give them out. Counts of them, or those of an engine with
// its prefix cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "kv/capacity_view.h"
#include "kv/kv_books.h"
#include "plan/iteration_plan.h"

namespace tandem {

class PlayedBooks : public CapacityView {
 public:
  // Grows a sequence to num_blocks, in `tier` if it is new. False: no room, or it is in the other tier.
  virtual bool Reserve(SequenceId sequence, Tier tier, int64_t num_blocks) = 0;
  virtual bool MoveTo(SequenceId sequence, Tier to) = 0;
  // It waits again.
  virtual void Release(SequenceId sequence) = 0;
  // Nothing more comes of it.
  virtual void End(SequenceId sequence) { Release(sequence); }

  // Where beginnings are cached. False: it cannot begin so.
  virtual bool Attach(const AttachedPrefix& /*prefix*/) { return false; }
  virtual void Publish(SequenceId /*sequence*/, int64_t /*num_computed*/) {}
  // The number of blocks.
  virtual int64_t CopyUnused(const CopyDown& /*wanted*/) { return 0; }
};

// Counts alone.
class SimulatedBooks : public PlayedBooks {
 public:
  SimulatedBooks(int64_t block_size, int64_t gpu_blocks, int64_t cpu_blocks)
      : block_size_(block_size), total_{gpu_blocks, cpu_blocks}, free_(total_) {}
  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return total_[static_cast<size_t>(tier)]; }
  int64_t free_blocks(Tier tier) const override { return free_[static_cast<size_t>(tier)]; }
  std::optional<Holding> holding_of(SequenceId sequence) const override;
  bool Reserve(SequenceId sequence, Tier tier, int64_t num_blocks) override;
  bool MoveTo(SequenceId sequence, Tier to) override;
  void Release(SequenceId sequence) override;

 private:
  int64_t block_size_;
  std::array<int64_t, kNumTiers> total_;
  std::array<int64_t, kNumTiers> free_;
  std::unordered_map<SequenceId, Holding> held_;
};

// An engine's. Who submits a sequence tells its hashes first (KvBooks::Identify).
class CachingBooks : public PlayedBooks {
 public:
  // books: outlive it.
  explicit CachingBooks(KvBooks* books) : books_(books) {}
  int64_t block_size() const override { return books_->block_size(); }
  int64_t total_blocks(Tier tier) const override { return books_->total_blocks(tier); }
  int64_t free_blocks(Tier tier) const override { return books_->free_blocks(tier); }
  int64_t blocks_without_loss(Tier tier) const override { return books_->blocks_without_loss(tier); }
  std::optional<Holding> holding_of(SequenceId sequence) const override {
    return books_->holding_of(sequence);
  }
  int64_t blocks_freed_by(SequenceId sequence) const override { return books_->blocks_freed_by(sequence); }
  CachedPrefix cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const override {
    return books_->cached_prefix(sequence, tier, max_tokens);
  }
  bool is_coming(SequenceId sequence, int64_t num_blocks) const override {
    return books_->is_coming(sequence, num_blocks);
  }
  bool begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const override {
    return books_->begin_alike(a, b, num_blocks);
  }
  int64_t shared_tokens(SequenceId a, SequenceId b) const override { return books_->shared_tokens(a, b); }

  bool Reserve(SequenceId sequence, Tier tier, int64_t num_blocks) override;
  bool MoveTo(SequenceId sequence, Tier to) override;
  void Release(SequenceId sequence) override { books_->Release(sequence); }
  void End(SequenceId sequence) override { books_->Forget(sequence); }
  bool Attach(const AttachedPrefix& prefix) override;
  void Publish(SequenceId sequence, int64_t num_computed) override {
    books_->Publish(sequence, num_computed);
  }
  int64_t CopyUnused(const CopyDown& wanted) override;

 private:
  KvBooks* books_;
};

}  // namespace tandem
