#include "engine/plan_ahead.h"

#include <algorithm>
#include <unordered_map>

namespace tandem {

StateAhead AdvanceState(const ScheduleState& now, const IterationPlan& running, int64_t num_layers,
                        const std::function<bool(SequenceId)>& ends_by_length) {
  StateAhead ahead{now, {}};
  std::unordered_map<SequenceId, ScheduledSequence*> by_id;
  for (ScheduledSequence& sequence : ahead.state.running) by_id.emplace(sequence.id, &sequence);
  const auto advance = [&](SequenceId id, int64_t num_computed, bool samples) {
    ScheduledSequence& sequence = *by_id.at(id);
    sequence.num_computed = num_computed;
    if (!samples) return;
    ++sequence.num_tokens;
    if (ends_by_length(id)) ahead.ended.insert(id);
  };
  for (const PrefillChunk& chunk : running.main.prefills)
    advance(chunk.sequence, chunk.start + chunk.num_tokens, chunk.samples);
  for (const DecodeRow& row : running.main.gpu_decodes) advance(row.sequence, row.position + 1, true);
  for (const DecodeRow& row : running.main.cpu_decodes) advance(row.sequence, row.position + 1, true);
  for (const CohortStep& step : running.cohorts) {
    if (step.visits.empty() || step.visits.back().layer != num_layers - 1) continue;
    for (const DecodeRow& row : step.rows) advance(row.sequence, row.position + 1, true);
  }
  std::erase_if(ahead.state.running,
                [&](const ScheduledSequence& sequence) { return ahead.ended.contains(sequence.id); });
  return ahead;
}

CapacityAhead::CapacityAhead(const CapacityView& now, const std::unordered_set<SequenceId>& ended)
    : now_(now), ended_(ended) {
  for (const SequenceId id : ended) {
    if (const std::optional<Tier> tier = now.tier_of(id))
      freed_blocks_[static_cast<size_t>(*tier)] += now.held_blocks(id);
  }
}

bool DropEnded(const std::function<bool(SequenceId)>& has_ended, IterationPlan* plan) {
  const auto of_ended = [&](const auto& part) { return has_ended(part.sequence); };
  std::erase_if(plan->preempted, has_ended);
  std::erase_if(plan->moves, of_ended);
  std::erase_if(plan->main.prefills, of_ended);
  std::erase_if(plan->main.gpu_decodes, of_ended);
  std::erase_if(plan->main.cpu_decodes, of_ended);
  const bool cohorts_whole = std::all_of(
      plan->cohorts.begin(), plan->cohorts.end(),
      [&](const CohortStep& step) { return std::none_of(step.rows.begin(), step.rows.end(), of_ended); });
  return cohorts_whole && !plan->empty();
}

}  // namespace tandem
