// Blocks, rows and sequences while a plan is made: what capacity says, looked up once a sequence, and what
// the plan has changed so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/capacity_view.h"
#include "plan/iteration_plan.h"
#include "planning/planner_tuning.h"
#include "planning/schedule_state.h"

namespace tandem {

// A running sequence, its tier after the plan's moves.
struct RunningSequence {
  SequenceId id = 0;
  int64_t num_tokens = 0;
  int64_t num_computed = 0;
  int64_t first_logits = 0;  // ScheduledSequence::first_logits
  int64_t held_blocks = 0;
  int64_t needed_blocks = 0;  // for num_tokens
  int64_t growth_blocks = 0;  // its part of the growth of its tier
  Tier tier = Tier::kGpu;
  bool decoding = false;
  bool has_room = true;  // of a decode: what it lacks is part of the growth of its tier
  bool preempted = false;
  bool moved = false;
  bool flexible = false;
  uint64_t beginning = 0;  // ScheduledSequence's
  // Of a decode: whether others of its beginning have the same blocks, and how many tokens, in whole
  // partitions of CPU attention, it has in common with the one before it.
  bool shares = false;
  int64_t num_shared = 0;
  int64_t num_left = 0;    // tokens that it generates yet at most; 0: not known
  bool in_flight = false;  // amid a token, in a cohort that is not dropped
  CohortId cohort = 0;     // that it is in

  // Neither preempted nor moved while it is amid a token.
  bool may_leave() const { return !moved && !in_flight; }
  bool decodes_in(Tier where) const { return decoding && !preempted && tier == where; }
  bool lives_in(Tier where) const { return !preempted && tier == where; }
};

// Changes go through the functions, so that the sums stay right. Growth of a tier: blocks that its decodes
// still lack in order to run in this iteration; of the gpu tier only the oldest max_num_batched_tokens
// decodes count, the others have no row.
class TierBooks {
 public:
  TierBooks(const ScheduleState& state, const CapacityView& capacity, const PlannerTuning& tuning);

  const PlannerTuning& tuning() const { return *tuning_; }

  // Oldest first.
  const std::vector<RunningSequence>& sequences() const { return sequences_; }
  int64_t block_size() const { return block_size_; }
  int64_t total_blocks(Tier tier) const { return total_[Index(tier)]; }
  int64_t growth(Tier tier) const { return growth_[Index(tier)]; }
  int64_t free_blocks(Tier tier) const { return free_[Index(tier)]; }
  // Free once all decodes of the tier have grown; negative if they cannot.
  int64_t spare_blocks(Tier tier) const { return free_[Index(tier)] - growth_[Index(tier)]; }
  int64_t num_sequences(Tier tier) const { return num_sequences_[Index(tier)]; }
  int64_t num_sequences() const { return num_sequences_[0] + num_sequences_[1]; }
  int64_t num_decodes(Tier tier) const { return num_decodes_[Index(tier)]; }
  int64_t BlocksFor(int64_t num_tokens) const { return (num_tokens + block_size_ - 1) / block_size_; }
  // Blocks that the decodes of a tier take in the next iterations, if each runs in all of them.
  int64_t GrowthAhead(Tier tier) const;

  void Preempt(size_t index, PreemptionReason reason);
  // The sequence needs room for all its tokens in `to`.
  void MoveTo(size_t index, Tier to);
  // As it was before the plan.
  const CapacityView& capacity() const { return *capacity_; }
  // A waiting sequence takes blocks.
  void Admit(Tier tier, int64_t num_blocks);
  // Blocks that were free are held until the plan has been carried out.
  void Hold(Tier tier, int64_t num_blocks) { free_[Index(tier)] -= num_blocks; }

  // The cohorts lose the token that they are at; their sequences may leave and decode elsewhere.
  void DropCohort(CohortId id);
  void DropAllCohorts();
  // All but one in transit.
  void DropDecodeCohorts();

  const std::vector<CohortId>& dropped() const { return dropped_; }
  const std::vector<Preemption>& preempted() const { return preempted_; }
  const std::vector<Move>& moves() const { return moves_; }
  bool any_swapped_out() const { return any_swapped_out_; }

 private:
  static size_t Index(Tier tier) { return static_cast<size_t>(tier); }
  void FindShared(const CapacityView& capacity);
  void Leave(RunningSequence* sequence);

  const PlannerTuning* tuning_;   // outlives the books
  const CapacityView* capacity_;  // likewise
  int64_t block_size_;
  std::array<int64_t, kNumTiers> total_ = {};
  std::array<int64_t, kNumTiers> free_ = {};
  std::array<int64_t, kNumTiers> growth_ = {};
  std::array<int64_t, kNumTiers> num_sequences_ = {};
  std::array<int64_t, kNumTiers> num_decodes_ = {};
  std::vector<RunningSequence> sequences_;
  std::vector<CohortId> dropped_;
  std::vector<Preemption> preempted_;
  std::vector<Move> moves_;
  bool any_swapped_out_ = false;
};

}  // namespace tandem
