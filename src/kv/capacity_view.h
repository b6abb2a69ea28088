// What strategies may know of the KV cache: room and holdings, never memory.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/iteration_plan.h"

namespace tandem {

// The beginning of a waiting sequence whose KV lies in a tier already: whole blocks.
struct CachedPrefix {
  int64_t num_blocks = 0;
  int64_t num_unused = 0;  // of those, ones that nobody holds: they come out of the free blocks
};

// What a sequence holds: blocks of one tier.
struct Holding {
  Tier tier = Tier::kGpu;
  int64_t num_blocks = 0;
  bool operator==(const Holding&) const = default;
};

class CapacityView {
 public:
  virtual ~CapacityView() = default;
  virtual int64_t block_size() const = 0;  // tokens a block
  virtual int64_t total_blocks(Tier tier) const = 0;
  // Those among them that are kept for who begins as they do are given up when they are wanted.
  virtual int64_t free_blocks(Tier tier) const = 0;
  // Of the free blocks, those that hold nothing that could be found, or that the other tier has not got too.
  virtual int64_t blocks_without_loss(Tier tier) const { return free_blocks(tier); }
  // Absent if it holds none.
  virtual std::optional<Holding> holding_of(SequenceId sequence) const = 0;
  // Blocks that a sequence holds; 0 if none.
  int64_t held_blocks(SequenceId sequence) const {
    return holding_of(sequence).value_or(Holding()).num_blocks;
  }
  // Blocks that would be free if the sequence gave up all it holds: fewer than it holds where it shares some.
  virtual int64_t blocks_freed_by(SequenceId sequence) const { return held_blocks(sequence); }
  // Where they are; absent if it holds none.
  std::optional<Tier> tier_of(SequenceId sequence) const {
    const std::optional<Holding> holding = holding_of(sequence);
    return holding ? std::optional(holding->tier) : std::nullopt;
  }
  // Of the first max_tokens tokens of a sequence that holds nothing.
  virtual CachedPrefix cached_prefix(SequenceId /*sequence*/, Tier /*tier*/, int64_t /*max_tokens*/) const {
    return {};
  }
  // Whether a sequence that holds blocks is about to compute what block num_blocks - 1 of another one holds.
  virtual bool is_coming(SequenceId /*sequence*/, int64_t /*num_blocks*/) const { return false; }
  // Whether the first num_blocks blocks of two sequences are known to hold the same tokens.
  virtual bool begin_alike(SequenceId /*a*/, SequenceId /*b*/, int64_t /*num_blocks*/) const { return false; }

  // How many tokens two sequences that hold blocks begin with in the same blocks.
  virtual int64_t shared_tokens(SequenceId /*a*/, SequenceId /*b*/) const { return 0; }

  int64_t BlocksFor(int64_t num_tokens) const { return (num_tokens + block_size() - 1) / block_size(); }
};

}  // namespace tandem
