#include "plan/plan_validator.h"

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
    TANDEM_RETURN_IF_ERROR(CheckPreemptedAndMoved());
    int64_t num_rows = plan_.main.num_rows();
    for (const PrefillChunk& chunk : plan_.main.prefills) TANDEM_RETURN_IF_ERROR(CheckPrefill(chunk));
    for (const DecodeRow& row : plan_.main.gpu_decodes) TANDEM_RETURN_IF_ERROR(CheckDecode(row, Tier::kGpu));
    for (const DecodeRow& row : plan_.main.cpu_decodes) TANDEM_RETURN_IF_ERROR(CheckDecode(row, Tier::kCpu));
    std::unordered_set<CohortId> cohorts;
    for (const CohortStep& step : plan_.cohorts) {
      if (!cohorts.insert(step.cohort).second) return Broken("cohort {} appears twice", step.cohort);
      TANDEM_RETURN_IF_ERROR(CheckCohort(step));
      num_rows += static_cast<int64_t>(step.rows.size());
    }
    if (num_rows > rules_.max_rows)
      return Broken("{} rows, at most {} are allowed", num_rows, rules_.max_rows);
    return {};
  }

 private:
  Status CheckPreemptedAndMoved() {
    for (const SequenceId id : plan_.preempted) {
      const auto sequence = rules_.find_sequence(id);
      if (!sequence) return Broken("preempted sequence {} is unknown", id);
      if (!sequence->tier) return Broken("preempted sequence {} holds no blocks", id);
      if (!used_.insert(id).second) return Broken("sequence {} is preempted twice", id);
    }
    for (const Move& move : plan_.moves) {
      const auto sequence = rules_.find_sequence(move.sequence);
      if (!sequence) return Broken("moved sequence {} is unknown", move.sequence);
      if (!sequence->tier) return Broken("moved sequence {} holds no blocks", move.sequence);
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

  Status CheckPrefill(const PrefillChunk& chunk) {
    TANDEM_RETURN_IF_ERROR(Use(chunk.sequence));
    const auto sequence = rules_.find_sequence(chunk.sequence);
    if (!sequence) return Broken("prefilled sequence {} is unknown", chunk.sequence);
    if (chunk.num_tokens < 1)
      return Broken("sequence {}: chunk of {} tokens", chunk.sequence, chunk.num_tokens);
    if (chunk.start != sequence->num_computed) {
      return Broken("sequence {}: chunk starts at {}, {} tokens are computed", chunk.sequence, chunk.start,
                    sequence->num_computed);
    }
    const int64_t end = chunk.start + chunk.num_tokens;
    if (end > sequence->num_tokens) {
      return Broken("sequence {}: chunk ends at {}, it has {} tokens", chunk.sequence, end,
                    sequence->num_tokens);
    }
    if (chunk.samples != (end == sequence->num_tokens)) {
      return Broken("sequence {}: a chunk samples if and only if it ends the prompt", chunk.sequence);
    }
    const auto tier = TierOf(chunk.sequence, *sequence);
    if (tier && *tier != Tier::kGpu)
      return Broken("sequence {}: prefill outside the gpu tier", chunk.sequence);
    return {};
  }

  Status CheckDecode(const DecodeRow& row, Tier tier) {
    TANDEM_RETURN_IF_ERROR(Use(row.sequence));
    return CheckRow(row, tier);
  }

  Status CheckRow(const DecodeRow& row, Tier tier) const {
    const auto sequence = rules_.find_sequence(row.sequence);
    if (!sequence) return Broken("decoded sequence {} is unknown", row.sequence);
    if (TierOf(row.sequence, *sequence) != tier) {
      return Broken("decoded sequence {} is not in the {} tier", row.sequence, TierName(tier));
    }
    if (row.position != sequence->num_tokens - 1 || sequence->num_computed != row.position) {
      return Broken("sequence {}: decode at {}, it has {} tokens and {} are computed", row.sequence,
                    row.position, sequence->num_tokens, sequence->num_computed);
    }
    return {};
  }

  Status CheckCohort(const CohortStep& step) {
    if (step.rows.empty()) return Broken("cohort {} has no rows", step.cohort);
    for (const DecodeRow& row : step.rows) TANDEM_RETURN_IF_ERROR(CheckDecode(row, Tier::kCpu));
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

  const IterationPlan& plan_;
  const PlanRules& rules_;
  std::unordered_set<SequenceId> used_;
  std::unordered_map<SequenceId, Tier> moved_;
};

}  // namespace

Status ValidatePlan(const IterationPlan& plan, const PlanRules& rules) {
  return Validator(plan, rules).Validate();
}

}  // namespace tandem
