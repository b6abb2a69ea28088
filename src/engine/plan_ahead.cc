#include "engine/plan_ahead.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace tandem {
namespace {

// Where a cohort is after its step, if all visits are made.
int64_t CursorAfter(const CohortStep& step, int64_t num_layers) {
  if (step.visits.empty()) return step.cursor;
  const int64_t next = step.visits.back().layer + 1;
  return next == num_layers ? kEntry : next;
}

// The step of a cohort that goes on, `lag` layers behind what was planned. False: its visits do not fit any
// more.
bool PutBack(int64_t lag, CohortStep* step) {
  step->cursor -= lag;
  if (step->visits.empty()) return true;
  if (step->rides) {
    step->visits = {{.boundary = step->cursor, .layer = step->cursor}};
    return true;
  }
  const int64_t first_boundary = step->visits.front().boundary - lag;
  if (first_boundary < kEntry) return false;
  std::vector<Visit> missed;
  for (int64_t i = 0; i < lag; ++i) missed.push_back({first_boundary + i, step->cursor + i});
  step->visits.insert(step->visits.begin(), missed.begin(), missed.end());
  return true;
}

// Takes out riders beyond max_rider_rows at a boundary, first the ones that are not late.
void Park(const std::unordered_set<CohortId>& late, int64_t max_rider_rows, IterationPlan* plan) {
  std::unordered_map<int64_t, int64_t> riders;  // by boundary
  std::unordered_set<CohortId> parked;
  for (const bool are_late : {true, false}) {
    for (const CohortStep& step : plan->cohorts) {
      if (!step.rides || late.contains(step.cohort) != are_late) continue;
      const int64_t num_rows = NumRowsOf(step.rows);
      int64_t& at_boundary = riders[step.cursor];
      if (at_boundary + num_rows > max_rider_rows) {
        parked.insert(step.cohort);
      } else {
        at_boundary += num_rows;
      }
    }
  }
  std::erase_if(plan->cohorts, [&](const CohortStep& step) { return parked.contains(step.cohort); });
}

}  // namespace

void MoveCohort(const CohortStep& step, int64_t cursor, std::vector<InFlightCohort>* cohorts) {
  const auto found = std::find_if(cohorts->begin(), cohorts->end(),
                                  [&](const InFlightCohort& each) { return each.cohort == step.cohort; });
  if (cursor == kEntry) {
    if (found != cohorts->end()) cohorts->erase(found);
  } else if (found == cohorts->end()) {
    cohorts->push_back({step.cohort, step.rows, cursor});
  } else {
    found->cursor = cursor;
  }
}

StateAhead AdvanceState(const ScheduleState& now, const IterationPlan& running, int64_t num_layers,
                        const std::function<bool(SequenceId)>& ends_by_length) {
  StateAhead ahead{now, {}};
  std::unordered_map<SequenceId, ScheduledSequence*> by_id;
  for (ScheduledSequence& sequence : ahead.state.running) by_id.emplace(sequence.id, &sequence);
  const auto advance = [&](const RowSpan& span) {
    const auto found = by_id.find(span.sequence);
    if (found == by_id.end()) return;  // what is computed of it is for nobody
    ScheduledSequence& sequence = *found->second;
    // Its log-probabilities up to there are reported then.
    if (sequence.echo_from) sequence.echo_from = std::max(*sequence.echo_from, span.end());
    if (span.end() >= sequence.num_tokens - 1) sequence.echo_from.reset();
    sequence.num_computed = span.end();
    if (span.end() < sequence.num_tokens) return;
    ++sequence.num_tokens;
    if (ends_by_length(span.sequence)) ahead.ended.insert(span.sequence);
  };
  for (const RowSpan& span : running.main.spans) advance(span);
  for (const CohortStep& step : running.cohorts) {
    if (step.visits.empty()) continue;
    MoveCohort(step, CursorAfter(step, num_layers), &ahead.state.cohorts);
    if (step.visits.back().layer != num_layers - 1) continue;
    for (const RowSpan& row : step.rows) advance(row);
  }
  std::erase_if(ahead.state.running,
                [&](const ScheduledSequence& sequence) { return ahead.ended.contains(sequence.id); });
  return ahead;
}

CapacityAhead::CapacityAhead(const CapacityView& now, const std::unordered_set<SequenceId>& ended)
    : now_(now), ended_(ended) {
  for (const SequenceId id : ended) {
    if (const std::optional<Tier> tier = now.tier_of(id))
      freed_blocks_[static_cast<size_t>(*tier)] += now.blocks_freed_by(id);
  }
}

bool DropEnded(const std::function<bool(SequenceId)>& has_ended, IterationPlan* plan) {
  const auto of_ended = [&](const auto& part) { return has_ended(part.sequence); };
  std::erase_if(plan->attached, of_ended);
  std::erase_if(plan->preempted, of_ended);
  std::erase_if(plan->moves, of_ended);
  std::erase_if(plan->main.spans, of_ended);
  // A cohort may begin with fewer rows than planned; one in flight goes on with all.
  for (CohortStep& step : plan->cohorts) {
    if (step.cursor == kEntry) std::erase_if(step.rows, of_ended);
  }
  std::erase_if(plan->cohorts, [](const CohortStep& step) { return step.rows.empty(); });
  const bool can_ride =
      !plan->main.empty() || std::none_of(plan->cohorts.begin(), plan->cohorts.end(),
                                          [](const CohortStep& step) { return step.rides; });
  return can_ride && !plan->empty();
}

bool FollowCohorts(const IterationPlan& ran, const std::vector<CohortProgress>& progress, int64_t num_layers,
                   int64_t max_rider_rows, IterationPlan* plan) {
  TANDEM_CHECK(ran.cohorts.size() == progress.size(), "progress of {} cohorts, {} ran", progress.size(),
               ran.cohorts.size());
  std::unordered_set<CohortId> late;
  for (size_t i = 0; i < progress.size(); ++i) {
    const int64_t planned = CursorAfter(ran.cohorts[i], num_layers);
    const int64_t lag = planned - progress[i].cursor;
    if (lag == 0) continue;
    // A token that did not end, or a cohort that did not enter.
    if (planned == kEntry || progress[i].cursor == kEntry) return false;
    const CohortId id = progress[i].cohort;
    if (std::find(plan->dropped.begin(), plan->dropped.end(), id) != plan->dropped.end()) continue;
    const auto step = std::find_if(plan->cohorts.begin(), plan->cohorts.end(),
                                   [id](const CohortStep& each) { return each.cohort == id; });
    if (step == plan->cohorts.end()) continue;
    if (!PutBack(lag, &*step)) return false;
    late.insert(id);
  }
  if (!late.empty()) Park(late, max_rider_rows, plan);
  return !plan->empty();
}

}  // namespace tandem
