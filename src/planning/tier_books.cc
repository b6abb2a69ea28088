#include "planning/tier_books.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/id_table.h"
#include "base/kv_layout.h"

namespace tandem {
TierBooks::TierBooks(const ScheduleState& state, const CapacityView& capacity, const PlannerTuning& tuning)
    : tuning_(&tuning), capacity_(&capacity), block_size_(capacity.block_size()) {
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    total_[Index(tier)] = capacity.total_blocks(tier);
    free_[Index(tier)] = capacity.free_blocks(tier);
  }
  size_t num_in_flight = 0;
  for (const InFlightCohort& cohort : state.cohorts) num_in_flight += cohort.rows.size();
  IdTable<CohortId> cohorts(num_in_flight);
  for (const InFlightCohort& cohort : state.cohorts) {
    for (const RowSpan& row : cohort.rows) cohorts.Insert(row.sequence, cohort.cohort);
  }
  sequences_.reserve(state.running.size());
  for (const ScheduledSequence& scheduled : state.running) {
    const Holding holding = capacity.holding_of(scheduled.id).value_or(Holding());
    RunningSequence sequence{.id = scheduled.id,
                             .num_tokens = scheduled.num_tokens,
                             .num_computed = scheduled.num_computed,
                             .first_logits = scheduled.first_logits(),
                             .held_blocks = holding.num_blocks,
                             .needed_blocks = BlocksFor(scheduled.num_tokens),
                             .tier = holding.tier,
                             .decoding = scheduled.decoding(),
                             .flexible = scheduled.flexible,
                             .beginning = scheduled.beginning,
                             .num_left = std::max<int64_t>(0, scheduled.final_tokens - scheduled.num_tokens)};
    if (const CohortId* cohort = cohorts.Find(scheduled.id)) {
      sequence.in_flight = true;
      sequence.cohort = *cohort;
    }
    const size_t tier = Index(sequence.tier);
    ++num_sequences_[tier];
    if (sequence.decoding) {
      const bool has_row = sequence.tier == Tier::kCpu
                               ? state.cpu_tier_usable
                               : num_decodes_[tier] < state.limits.max_num_batched_tokens;
      const int64_t lacking = std::max<int64_t>(0, sequence.needed_blocks - sequence.held_blocks);
      if (has_row) sequence.growth_blocks = lacking;
      sequence.has_room = has_row || lacking == 0;
      growth_[tier] += sequence.growth_blocks;
      ++num_decodes_[tier];
    }
    sequences_.push_back(sequence);
  }
  FindShared(capacity);
}

void TierBooks::FindShared(const CapacityView& capacity) {
  std::array<std::unordered_map<uint64_t, size_t>, kNumTiers> last;  // of each beginning
  for (size_t i = 0; i < sequences_.size(); ++i) {
    RunningSequence& sequence = sequences_[i];
    if (sequence.beginning == 0 || !sequence.decoding) continue;
    const auto [found, is_first] = last[Index(sequence.tier)].try_emplace(sequence.beginning, i);
    if (is_first) continue;
    RunningSequence& before = sequences_[std::exchange(found->second, i)];
    // The new token is in no block yet.
    const int64_t num_both = std::min(
        {capacity.shared_tokens(before.id, sequence.id), before.num_tokens - 1, sequence.num_tokens - 1});
    sequence.num_shared = num_both / kPartitionTokens * kPartitionTokens;
    if (sequence.num_shared == 0) continue;
    before.shares = true;
    sequence.shares = true;
  }
}

int64_t TierBooks::GrowthAhead(Tier tier) const {
  return (num_decodes(tier) * tuning_->iterations_ahead + block_size_ - 1) / block_size_;
}

void TierBooks::Leave(RunningSequence* sequence) {
  const size_t tier = Index(sequence->tier);
  // Fewer than it holds where it shares some.
  free_[tier] += capacity_->blocks_freed_by(sequence->id);
  --num_sequences_[tier];
  growth_[tier] -= sequence->growth_blocks;
  sequence->growth_blocks = 0;
  if (sequence->decoding) --num_decodes_[tier];
}

void TierBooks::Preempt(size_t index, PreemptionReason reason) {
  RunningSequence& sequence = sequences_[index];
  Leave(&sequence);
  sequence.preempted = true;
  preempted_.push_back({sequence.id, reason});
}

void TierBooks::MoveTo(size_t index, Tier to) {
  RunningSequence& sequence = sequences_[index];
  Leave(&sequence);
  if (to == Tier::kCpu) any_swapped_out_ = true;
  sequence.tier = to;
  sequence.moved = true;
  sequence.held_blocks = std::max(sequence.held_blocks, sequence.needed_blocks);
  sequence.has_room = true;
  free_[Index(to)] -= sequence.held_blocks;
  ++num_sequences_[Index(to)];
  if (sequence.decoding) ++num_decodes_[Index(to)];
  moves_.push_back({sequence.id, to});
}

void TierBooks::DropCohort(CohortId id) {
  bool any = false;
  for (RunningSequence& sequence : sequences_) {
    if (!sequence.in_flight || sequence.cohort != id) continue;
    sequence.in_flight = false;
    any = true;
  }
  if (any) dropped_.push_back(id);
}

void TierBooks::DropDecodeCohorts() {
  for (const RunningSequence& sequence : sequences_) {
    if (sequence.in_flight && sequence.decoding) DropCohort(sequence.cohort);
  }
}

void TierBooks::DropAllCohorts() {
  for (const RunningSequence& sequence : sequences_) {
    if (sequence.in_flight) DropCohort(sequence.cohort);
  }
}

void TierBooks::Admit(Tier tier, int64_t num_blocks) {
  free_[Index(tier)] -= num_blocks;
  ++num_sequences_[Index(tier)];
}

}  // namespace tandem
