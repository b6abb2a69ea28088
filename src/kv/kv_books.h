// The books of the KV cache: which blocks of the two tiers belong to which sequence. No memory: one set of
// books serves any number of memories (kv/kv_memory.h) in which the same blocks lie.
//
// A sequence lives wholly in one tier, except while it moves. Full blocks may belong to several sequences and
// are immutable then. Those of sequences whose block hashes are told (Identify) are known by them from when
// they are computed (Publish) until their room is wanted, and whoever begins alike begins with them (Attach).
// docs/kv_cache.md says more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_hash.h"
#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/capacity_view.h"
#include "kv/prefix_index.h"
#include "kv/prefix_listener.h"
#include "plan/block_move.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only.
class KvBooks : public CapacityView {
 public:
  // num_blocks: by tier, at most MaxBlocks each. Errors: kResourceExhausted, with the flag of the tier whose
  // books do not fit as param. The memory is better allocated before: it refuses sizes that no machine has.
  static Result<std::unique_ptr<KvBooks>> Create(int64_t block_size,
                                                 const std::array<int64_t, kNumTiers>& num_blocks);
  // Slots, which number tokens, have 32 bits.
  static int64_t MaxBlocks(int64_t block_size);

  // Hears from now on what can be found, and no more; null: nobody. Outlives the books, or the next call.
  void Listen(PrefixListener* listener) { listener_ = listener; }

  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return books(tier).pool.num_blocks(); }
  int64_t free_blocks(Tier tier) const override {
    return books(tier).pool.num_free() + books(tier).prefixes.num_unused();
  }
  int64_t blocks_without_loss(Tier tier) const override {
    return books(tier).pool.num_free() + books(tier).prefixes.num_settled();
  }
  // Blocks that are known by their hash, used or not.
  int64_t known_blocks(Tier tier) const { return books(tier).prefixes.num_known(); }
  // Blocks that moves under way have yet to let go. Where none is shared, free, held and in-flight blocks are
  // the total; a shared block counts for everyone that it belongs to.
  int64_t in_flight_blocks(Tier tier) const { return books(tier).in_flight_blocks; }
  // During a move: of the tier that the sequence moves to.
  std::optional<Holding> holding_of(SequenceId sequence) const override;
  // Of the same tier.
  int64_t blocks_freed_by(SequenceId sequence) const override;
  CachedPrefix cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const override;
  bool is_coming(SequenceId sequence, int64_t num_blocks) const override;
  bool begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const override;
  int64_t shared_tokens(SequenceId a, SequenceId b) const override;
  // Tables and moves under way that a block belongs to; 0: it is free, known or not.
  int32_t references(Tier tier, int32_t block) const {
    return books(tier).pool.references(block) - (books(tier).prefixes.Knows(block) ? 1 : 0);
  }

  // Grows the table of a sequence so that it holds num_tokens; a new sequence starts in `tier`. False, and
  // nothing changed, if the tier has too few free blocks. CHECKs that a known sequence is in `tier`.
  bool Reserve(SequenceId sequence, Tier tier, int64_t num_tokens);
  // Gives up all blocks of a sequence, those of its move too; unknown sequences are ignored. Its hashes stay.
  void Release(SequenceId sequence);

  // The hashes of a sequence's next full blocks, in order: of all its tokens, computed or not. Until Forget.
  void Identify(SequenceId sequence, std::span<const BlockHash> hashes);
  // How many blocks of it have been identified.
  int64_t num_identified(SequenceId sequence) const;
  // The last hash; absent if there is none.
  std::optional<BlockHash> last_hash(SequenceId sequence) const;
  // Release, and its hashes are gone.
  void Forget(SequenceId sequence);
  // Its first num_computed tokens are computed, or will be before anything that is enqueued from now on: full
  // blocks among them that are identified can be found. One that holds the same as a known one gives way to
  // it. Nothing for a sequence that is unknown or moves.
  void Publish(SequenceId sequence, int64_t num_computed);
  // Nothing more is computed for it; it keeps its blocks.
  void Abandon(SequenceId sequence);
  // A sequence without blocks begins with the first num_tokens of what cached_prefix finds in the tier.
  // CHECKs that those are known whole blocks.
  void Attach(SequenceId sequence, Tier tier, int64_t num_tokens);
  // As plan/iteration_plan.h says: what is copied, and all before it, can be found in the cpu tier too from
  // now on. Blocks there that were let go before may be given up for it. The copies are to be enqueued before
  // anything that is enqueued from now on.
  BlockMove CopyUnused(const CopyDown& wanted);
  // Nothing that has been computed so far can be found any more.
  void ForgetPrefixes();

  // Empty for unknown sequences. Valid until the next change of this sequence.
  const std::vector<int32_t>& block_table(SequenceId sequence) const;
  // block * block_size + offset of the token at position, for its KV to be written. CHECKs that it is
  // reserved and that its block belongs to no other sequence.
  int32_t SlotToWrite(SequenceId sequence, int64_t position) const;
  // The same CHECKs for whoever writes tokens [begin, end) by the block table.
  void CheckWritable(SequenceId sequence, int64_t begin, int64_t end) const;

  // Finds or reserves blocks in the other tier for all that a sequence holds and switches its table to them:
  // from now on it is in tier `to` and may grow there. What is known there is not copied. The old blocks stay
  // its own until the move ends; what it shared is its own copy afterwards. Null, and nothing changed, if the
  // other tier has too few free blocks. CHECKs that the sequence is in the other tier and does not move yet.
  // The pointer is valid until EndMove, CancelMove or Release.
  const BlockMove* BeginMove(SequenceId sequence, Tier to);
  // Null if the sequence does not move.
  const BlockMove* move_of(SequenceId sequence) const;
  // Gives up the old blocks. All copies of them must be enqueued, or be before the next use: whoever reuses
  // the blocks comes after the copies, on the same stream or behind it. CHECKs that there is a move.
  void EndMove(SequenceId sequence);
  // Undoes a move: gives up what the sequence has in tier `to`, also what it grew by there, and its table is
  // again the one that it had. Its KV there is untouched. CHECKs that there is a move.
  void CancelMove(SequenceId sequence);

 private:
  struct TierBooks {
    BlockPool pool{0};
    PrefixIndex prefixes;  // has a reference of its own to each block that it knows
    int64_t in_flight_blocks = 0;

    // Begins to use blocks that are known.
    void Use(std::span<const int32_t> blocks);
    // The end of a table, or all of it, is used no more.
    void Free(const std::vector<int32_t>& blocks);
  };
  // A move under way.
  struct Leaving {
    BlockMove move;
    std::vector<int32_t> blocks;  // all that the sequence had
    int64_t num_published = 0;    // of them
  };
  struct Table {
    Tier tier = Tier::kGpu;
    std::vector<int32_t> blocks;
    int64_t num_published = 0;         // the first of them: they are known
    bool publishes = true;             // false: ForgetPrefixes came since it began
    std::unique_ptr<Leaving> leaving;  // null: no move under way
  };

  explicit KvBooks(int64_t block_size) : block_size_(block_size) {}
  const TierBooks& books(Tier tier) const { return tiers_[static_cast<size_t>(tier)]; }
  TierBooks& books(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }
  // False, and nothing changed, if there are too few.
  bool Allocate(Tier tier, int64_t count, std::vector<int32_t>* blocks);
  Table& MovingTable(SequenceId sequence);
  // Gives up the blocks that a table's move holds beside it.
  void FreeSource(Table* table);
  // Of a chain of the gpu tier, first to last, as far as there is room. How many blocks of it are left out.
  int64_t CopyChainDown(std::span<const int32_t> chain, int64_t max_blocks, BlockMove* copies);
  // The first num_blocks of the table can be found.
  void PublishBlocks(SequenceId sequence, int64_t num_blocks, Table* table);
  // The block that holds the token at position; CHECKs as SlotToWrite.
  int32_t BlockToWrite(SequenceId sequence, const Table& table, int64_t position) const;
  // Blocks [begin, end) of a chain are about to be computed by one more or one less.
  void Expect(std::span<const BlockHash> chain, int64_t begin, int64_t end);
  void ExpectNoMore(std::span<const BlockHash> chain, int64_t begin, int64_t end);
  // The same of all that a table has not published yet.
  void ExpectNoMore(SequenceId sequence, const Table& table);
  const Table& TableOf(SequenceId sequence) const;
  // All hashes of a sequence that have been told.
  std::span<const BlockHash> ChainOf(SequenceId sequence) const;
  // The first num_blocks of a chain, which are known in the tier.
  std::vector<int32_t> KnownBlocks(Tier tier, std::span<const BlockHash> chain) const;

  int64_t block_size_;
  PrefixListener* listener_ = nullptr;
  std::array<TierBooks, kNumTiers> tiers_;
  std::unordered_map<SequenceId, Table> tables_;
  std::unordered_map<SequenceId, std::vector<BlockHash>> chains_;
  // Of sequences that hold blocks and publish: the hashes that they have not published, and how many have
  // each.
  std::unordered_map<BlockHash, int32_t, BlockHashBits> expected_;
};

// Applies the moves of a plan: in each direction in the order given, out of the gpu tier first, in turns as
// far as there is room. Returns them in the order in which their copies are to be enqueued: what one leaves
// may be written by a later one. The old blocks are given up at once, so the copies come before any work that
// is enqueued for other blocks. CHECKs that all find room once others have left: the plan promised it.
std::vector<BlockMove> ApplyMoves(const std::vector<Move>& moves, KvBooks* books);

}  // namespace tandem
