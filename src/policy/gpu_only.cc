#include "policy/gpu_only.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "planning/coming_prefix.h"
#include "planning/neo_stages.h"

namespace tandem {
namespace {

// Builds one plan; keeps count of what is left of rows and blocks.
class GpuOnlyPlanner {
 public:
  GpuOnlyPlanner(const ScheduleState& state, const CapacityView& capacity)
      : state_(state),
        capacity_(capacity),
        free_blocks_(capacity.free_blocks(Tier::kGpu)),
        rows_left_(state.limits.max_num_batched_tokens),
        num_running_(state.running.size()) {}

  IterationPlan Plan() {
    plan_.strategy = "gpu-only";
    plan_.promise.strategy = plan_.strategy;
    decodes_.reserve(num_running_);
    PlanDecodes();
    PlanBegunPrefills();
    // After a preemption blocks are scarce: whoever waits would only push out the next one.
    if (plan_.preempted.empty()) AdmitWaiting();
    plan_.main.spans.insert(plan_.main.spans.end(), decodes_.begin(), decodes_.end());
    return std::move(plan_);
  }

 private:
  int64_t MissingBlocks(const ScheduledSequence& sequence, int64_t num_tokens) const {
    return std::max<int64_t>(0, capacity_.BlocksFor(num_tokens) - capacity_.held_blocks(sequence.id));
  }

  // The youngest running sequence gives its blocks back. Those before num_running_ stay.
  void PreemptYoungest() {
    --num_running_;
    const ScheduledSequence& victim = state_.running[num_running_];
    free_blocks_ += capacity_.blocks_freed_by(victim.id);
    plan_.preempted.push_back({victim.id, PreemptionReason::kGpuTierFull});
  }

  void PlanDecodes() {
    for (size_t i = 0; i < num_running_ && rows_left_ > 0; ++i) {
      const ScheduledSequence& sequence = state_.running[i];
      if (!sequence.decoding()) continue;
      const int64_t missing = MissingBlocks(sequence, sequence.num_tokens);
      // Stops at i + 1 at the latest if any younger one is left, else gives up its own place.
      while (missing > free_blocks_ && num_running_ > i) PreemptYoungest();
      if (num_running_ <= i) break;
      free_blocks_ -= missing;
      --rows_left_;
      decodes_.push_back(RowSpan::Decode(sequence.id, sequence.num_tokens - 1, Tier::kGpu));
    }
  }

  void AddChunk(const ScheduledSequence& sequence, int64_t start) {
    const int64_t num_tokens = std::min(rows_left_, sequence.num_tokens - start);
    rows_left_ -= num_tokens;
    plan_.main.spans.push_back(
        RowSpan::Chunk(sequence.id, start, num_tokens, sequence.first_logits(), Tier::kGpu));
  }

  void PlanBegunPrefills() {
    for (size_t i = 0; i < num_running_ && rows_left_ > 0; ++i) {
      const ScheduledSequence& sequence = state_.running[i];
      // Its blocks were reserved when it was admitted.
      if (!sequence.decoding()) AddChunk(sequence, sequence.num_computed);
    }
  }

  void AdmitWaiting() {
    size_t num_sequences = num_running_;
    int64_t num_passed_over = 0;
    for (const ScheduledSequence& sequence : state_.waiting) {
      if (rows_left_ <= 0 || num_sequences >= static_cast<size_t>(state_.limits.max_num_seqs)) return;
      // The whole prompt is reserved at once, so a prefill once begun never waits for blocks.
      const CachedPrefix prefix = capacity_.cached_prefix(sequence.id, Tier::kGpu, sequence.first_logits());
      if (IsComing(capacity_, sequence, prefix.num_blocks, plan_.main.spans, &RowSpan::sequence)) {
        if (++num_passed_over == PlannerTuning().most_passed_over) return;
        continue;
      }
      const int64_t missing =
          MissingBlocks(sequence, sequence.num_tokens) - (prefix.num_blocks - prefix.num_unused);
      const int64_t reserve =
          state_.gpu_blocks_to_keep(static_cast<int64_t>(num_sequences), capacity_.block_size(),
                                    PlannerTuning().MostBlocksKept(capacity_.total_blocks(Tier::kGpu)));
      // Nobody overtakes: a long prompt is not starved by short ones behind it.
      if (missing + reserve > free_blocks_) return;
      free_blocks_ -= missing;
      ++num_sequences;
      const int64_t start = prefix.num_blocks * capacity_.block_size();
      if (start > 0)
        plan_.attached.push_back({.sequence = sequence.id, .tier = Tier::kGpu, .num_tokens = start});
      AddChunk(sequence, start);
    }
  }

  const ScheduleState& state_;
  const CapacityView& capacity_;
  int64_t free_blocks_;
  int64_t rows_left_;
  size_t num_running_;
  std::vector<RowSpan> decodes_;
  IterationPlan plan_;
};

// The cache without its cpu tier.
class GpuTierAlone : public CapacityView {
 public:
  explicit GpuTierAlone(const CapacityView& whole) : whole_(whole) {}
  int64_t block_size() const override { return whole_.block_size(); }
  int64_t total_blocks(Tier tier) const override {
    return tier == Tier::kGpu ? whole_.total_blocks(tier) : 0;
  }
  int64_t free_blocks(Tier tier) const override { return tier == Tier::kGpu ? whole_.free_blocks(tier) : 0; }
  std::optional<Holding> holding_of(SequenceId sequence) const override {
    return whole_.holding_of(sequence);
  }
  int64_t blocks_freed_by(SequenceId sequence) const override { return whole_.blocks_freed_by(sequence); }
  bool is_coming(SequenceId sequence, int64_t num_blocks) const override {
    return whole_.is_coming(sequence, num_blocks);
  }
  bool begin_alike(SequenceId a, SequenceId b, int64_t num_blocks) const override {
    return whole_.begin_alike(a, b, num_blocks);
  }
  CachedPrefix cached_prefix(SequenceId sequence, Tier tier, int64_t max_tokens) const override {
    return tier == Tier::kGpu ? whole_.cached_prefix(sequence, tier, max_tokens) : CachedPrefix();
  }

 private:
  const CapacityView& whole_;
};

}  // namespace

IterationPlan GpuOnlyStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  if (!has_costs()) return GpuOnlyPlanner(state, capacity).Plan();
  const GpuTierAlone gpu_tier(capacity);
  return PlanByStages({{.name = name()}, state, gpu_tier, costs(), {}});
}

}  // namespace tandem
