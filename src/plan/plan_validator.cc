#include "plan/plan_validator.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tandem {
namespace {

template <typename... Args>
Error Broken(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

class Validator {
 public:
  Validator(const IterationPlan& plan, const PlanRules& rules) : plan_(plan), rules_(rules) {}

  Status Validate() {
    TANDEM_RETURN_IF_ERROR(CheckDropped());
    TANDEM_RETURN_IF_ERROR(CheckAttached());
    TANDEM_RETURN_IF_ERROR(CheckPreemptedAndMoved());
    for (const RowSpan& span : plan_.main.spans) TANDEM_RETURN_IF_ERROR(CheckSpan(span));
    std::unordered_set<CohortId> cohorts;
    for (const CohortStep& step : plan_.cohorts) {
      if (!cohorts.insert(step.cohort).second) return Broken("cohort {} appears twice", step.cohort);
      TANDEM_RETURN_IF_ERROR(CheckCohort(step));
    }
    TANDEM_RETURN_IF_ERROR(CheckInTransit());
    return CheckNumRows();
  }

 private:
  Status CheckDropped() {
    const auto is_known = [this](CohortId id) {
      return rules_.in_flight != nullptr &&
             std::any_of(rules_.in_flight->begin(), rules_.in_flight->end(),
                         [id](const InFlightCohort& cohort) { return cohort.cohort == id; });
    };
    std::unordered_set<CohortId> dropped;
    for (const CohortId id : plan_.dropped) {
      if (!dropped.insert(id).second) return Broken("cohort {} is dropped twice", id);
      if (!is_known(id)) return Broken("dropped cohort {} is not in flight", id);
    }
    if (rules_.in_flight == nullptr) return {};
    for (const InFlightCohort& cohort : *rules_.in_flight) {
      if (dropped.contains(cohort.cohort)) continue;
      in_flight_.emplace(cohort.cohort, &cohort);
      for (const RowSpan& row : cohort.rows) rows_in_flight_.push_back(row.sequence);
    }
    std::sort(rows_in_flight_.begin(), rows_in_flight_.end());
    return {};
  }

  // A sequence amid a token goes on with its cohort or not at all.
  Status CheckNotInFlight(SequenceId id) const {
    if (!std::binary_search(rows_in_flight_.begin(), rows_in_flight_.end(), id)) return {};
    const auto has_it = [id](const auto& entry) {
      const std::vector<RowSpan>& rows = entry.second->rows;
      return std::any_of(rows.begin(), rows.end(), [id](const RowSpan& row) { return row.sequence == id; });
    };
    const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), has_it);
    return Broken("sequence {} is in flight with cohort {}", id, found->first);
  }

  Status CheckAttached() {
    for (const AttachedPrefix& prefix : plan_.attached) {
      const SequenceId id = prefix.sequence;
      const auto sequence = rules_.find_sequence(id);
      if (!sequence) return Broken("attached sequence {} is unknown", id);
      if (sequence->tier) return Broken("attached sequence {} holds blocks", id);
      const int64_t num_cached = sequence->num_cached[static_cast<size_t>(prefix.tier)];
      if (prefix.num_tokens < 1 || prefix.num_tokens > num_cached)
        return Broken("sequence {} is attached to {} tokens, {} are in the {} tier", id, prefix.num_tokens,
                      num_cached, TierName(prefix.tier));
      if (!attached_.emplace(id, &prefix).second) return Broken("sequence {} is attached twice", id);
    }
    return {};
  }

  // As it will be when it has been attached.
  std::optional<PlannedSequence> Find(SequenceId id) const {
    std::optional<PlannedSequence> sequence = rules_.find_sequence(id);
    const auto found = attached_.find(id);
    if (sequence && found != attached_.end()) {
      sequence->tier = found->second->tier;
      sequence->num_computed = found->second->num_tokens;
    }
    return sequence;
  }

  Status CheckPreemptedAndMoved() {
    for (const Preemption& preemption : plan_.preempted) {
      const SequenceId id = preemption.sequence;
      const auto sequence = rules_.find_sequence(id);
      if (!sequence) return Broken("preempted sequence {} is unknown", id);
      if (!sequence->tier) return Broken("preempted sequence {} holds no blocks", id);
      TANDEM_RETURN_IF_ERROR(CheckNotInFlight(id));
      if (!used_.insert(id).second) return Broken("sequence {} is preempted twice", id);
    }
    for (const Move& move : plan_.moves) {
      const auto sequence = Find(move.sequence);
      if (!sequence) return Broken("moved sequence {} is unknown", move.sequence);
      if (!sequence->tier) return Broken("moved sequence {} holds no blocks", move.sequence);
      TANDEM_RETURN_IF_ERROR(CheckNotInFlight(move.sequence));
      if (*sequence->tier == move.to)
        return Broken("sequence {} is in the {} tier already", move.sequence, TierName(move.to));
      if (used_.contains(move.sequence)) return Broken("sequence {} is preempted and moved", move.sequence);
      if (!moved_.emplace(move.sequence, move.to).second)
        return Broken("sequence {} is moved twice", move.sequence);
    }
    return {};
  }

  Status Use(SequenceId id) {
    if (!used_.insert(id).second) return Broken("sequence {} appears twice", id);
    return {};
  }

  std::optional<Tier> TierOf(SequenceId id, const PlannedSequence& sequence) const {
    const auto moved = moved_.find(id);
    return moved == moved_.end() ? sequence.tier : moved->second;
  }

  Status CheckSpan(const RowSpan& span) {
    const SequenceId id = span.sequence;
    TANDEM_RETURN_IF_ERROR(CheckNotInFlight(id));
    TANDEM_RETURN_IF_ERROR(Use(id));
    const auto sequence = Find(id);
    if (!sequence) return Broken("sequence {} is unknown", id);
    if (span.num_tokens < 1) return Broken("sequence {}: span of {} tokens", id, span.num_tokens);
    if (span.start != sequence->num_computed)
      return Broken("sequence {}: span starts at {}, {} tokens are computed", id, span.start,
                    sequence->num_computed);
    if (span.end() > sequence->num_tokens + sequence->num_drafted)
      return Broken("sequence {}: span ends at {}, it has {} tokens and {} drafted", id, span.end(),
                    sequence->num_tokens, sequence->num_drafted);
    const int64_t first_logits = sequence->first_logits.value_or(sequence->num_tokens - 1);
    const int64_t sampled_from = std::clamp<int64_t>(first_logits - span.start, 0, span.num_tokens);
    if (span.sampled_from != sampled_from)
      return Broken("sequence {}: rows from {} of its span give logits, those from {} are wanted", id,
                    span.sampled_from, sampled_from);
    return CheckPlace(span, *sequence);
  }

  // Where its KV lives, and where it attends.
  Status CheckPlace(const RowSpan& span, const PlannedSequence& sequence) const {
    const auto tier = TierOf(span.sequence, sequence);
    if (tier && *tier != span.tier) {
      return Broken("sequence {}: span for the {} tier, its blocks are in the {} tier", span.sequence,
                    TierName(span.tier), TierName(*tier));
    }
    if (span.attention == Tier::kGpu) return {};
    if (span.tier == Tier::kGpu)
      return Broken("sequence {} attends on the CPU, its KV is in the gpu tier", span.sequence);
    if (!tier || span.start < sequence.num_tokens - 1) {
      return Broken("sequence {} attends on the CPU, {} of its {} tokens are computed", span.sequence,
                    sequence.num_computed, sequence.num_tokens);
    }
    return {};
  }

  Status CheckCohort(const CohortStep& step) {
    if (step.rows.empty()) return Broken("cohort {} has no rows", step.cohort);
    TANDEM_RETURN_IF_ERROR(CheckCohortRows(step));
    if (step.rides) return CheckRide(step);
    return CheckVisits(step);
  }

  Status CheckCohortRows(const CohortStep& step) {
    const auto known = in_flight_.find(step.cohort);
    if (known == in_flight_.end()) {
      if (step.cursor != kEntry)
        return Broken("cohort {} enters at layer {}, it is not in flight", step.cohort, step.cursor);
      for (const RowSpan& row : step.rows) {
        if (row.in_transit() != step.in_transit())
          return Broken("cohort {}: sequence {} is amid chunks or decodes, and is none", step.cohort,
                        row.sequence);
        if (row.attention != Tier::kCpu && !row.in_transit())
          return Broken("cohort {}: sequence {} attends on the GPU", step.cohort, row.sequence);
        TANDEM_RETURN_IF_ERROR(CheckSpan(row));
      }
      return {};
    }
    const InFlightCohort& cohort = *known->second;
    if (step.cursor != cohort.cursor) {
      return Broken("cohort {}: cursor {}, it is in flight at layer {}", step.cohort, step.cursor,
                    cohort.cursor);
    }
    // They were checked when they entered. Amid a token nothing happens to a sequence: what else the plan
    // does with one fails CheckNotInFlight.
    if (step.rows != cohort.rows) return Broken("cohort {} is in flight with other rows", step.cohort);
    return {};
  }

  // Their slots of the transit are those of one cohort.
  Status CheckInTransit() const {
    std::unordered_set<CohortId> in_transit;
    for (const auto& [id, cohort] : in_flight_) {
      if (cohort->in_transit()) in_transit.insert(id);
    }
    for (const CohortStep& step : plan_.cohorts) {
      if (!step.in_transit()) continue;
      in_transit.insert(step.cohort);
      if (in_transit.size() > 1) return Broken("cohort {} is in transit, and so is another one", step.cohort);
    }
    return {};
  }

  Status CheckRide(const CohortStep& step) const {
    if (step.in_transit()) return Broken("cohort {} rides, its rows are in transit", step.cohort);
    if (step.visits != std::vector<Visit>{{.boundary = step.cursor, .layer = step.cursor}})
      return Broken("cohort {} rides: it makes one visit, of the layer and at the boundary of its cursor {}",
                    step.cohort, step.cursor);
    if (step.cursor >= rules_.num_layers)
      return Broken("cohort {}: cursor {} outside the {} layers", step.cohort, step.cursor,
                    rules_.num_layers);
    if (plan_.main.empty()) return Broken("cohort {} rides without a main sub-batch", step.cohort);
    return {};
  }

  Status CheckVisits(const CohortStep& step) const {
    if (step.cursor < kEntry || step.cursor >= rules_.num_layers) {
      return Broken("cohort {}: cursor {} outside the {} layers", step.cohort, step.cursor,
                    rules_.num_layers);
    }
    int64_t layer = step.cursor;
    int64_t last_boundary = kEntry - 1;
    for (const Visit& visit : step.visits) {
      if (visit.layer != layer)
        return Broken("cohort {}: visit of layer {}, its cursor is at {}", step.cohort, visit.layer, layer);
      if (visit.layer >= rules_.num_layers)
        return Broken("cohort {}: visit past the last layer", step.cohort);
      if (visit.boundary <= last_boundary || visit.boundary >= rules_.num_layers) {
        return Broken("cohort {}: boundary {} is out of order or range", step.cohort, visit.boundary);
      }
      last_boundary = visit.boundary;
      ++layer;
    }
    return {};
  }

  Status CheckNumRows() const {
    int64_t num_rows = plan_.main.num_rows();
    std::unordered_map<int64_t, int64_t> riders;  // by boundary
    for (const CohortStep& step : plan_.cohorts) {
      if (step.visits.empty()) continue;
      const int64_t rows = NumRowsOf(step.rows);
      if (!step.rides) {
        num_rows += rows;
        continue;
      }
      const int64_t at_boundary = riders[step.cursor] += rows;
      if (at_boundary > rules_.max_rider_rows) {
        return Broken("cohort {} is one too many: {} rows ride at boundary {}, at most {} are allowed",
                      step.cohort, at_boundary, step.cursor, rules_.max_rider_rows);
      }
    }
    if (num_rows > rules_.max_rows)
      return Broken("{} rows, at most {} are allowed", num_rows, rules_.max_rows);
    return {};
  }

  const IterationPlan& plan_;
  const PlanRules& rules_;
  std::unordered_set<SequenceId> used_;
  std::unordered_map<SequenceId, const AttachedPrefix*> attached_;
  std::unordered_map<SequenceId, Tier> moved_;
  // In flight and not dropped, and the sequences in them, sorted.
  std::unordered_map<CohortId, const InFlightCohort*> in_flight_;
  std::vector<SequenceId> rows_in_flight_;
};

}  // namespace

Status ValidatePlan(const IterationPlan& plan, const PlanRules& rules) {
  return Validator(plan, rules).Validate();
}

}  // namespace tandem
