#include "simulate/plan_text_testing.h"

#include <fmt/format.h>

#include <iterator>

namespace tandem::testing {
namespace {

void AddSpan(std::string_view what, const RowSpan& span, std::string* text) {
  fmt::format_to(std::back_inserter(*text), "{} {} [{}, {}) tier {} attention {} logits from {}\n", what,
                 span.sequence, span.start, span.end(), TierName(span.tier), TierName(span.attention),
                 span.num_sampled() > 0 ? fmt::to_string(span.start + span.sampled_from) : "none");
}

}  // namespace

std::string PlanText(const IterationPlan& plan, int64_t number) {
  std::string text = fmt::format("iteration {} {}\n", number, plan.strategy);
  auto out = std::back_inserter(text);
  for (const CohortId id : plan.dropped) fmt::format_to(out, "drop {}\n", id);
  for (const Preemption& each : plan.preempted) fmt::format_to(out, "preempt {}\n", each.sequence);
  for (const Move& move : plan.moves)
    fmt::format_to(out, "move {} to {}\n", move.sequence, TierName(move.to));
  for (const RowSpan& span : plan.main.spans) AddSpan("main", span, &text);
  for (const CohortStep& step : plan.cohorts) {
    fmt::format_to(out, "cohort {} cursor {} {}", step.cohort, step.cursor, step.rides ? "rides" : "visits");
    for (const Visit& visit : step.visits) fmt::format_to(out, " {}@{}", visit.layer, visit.boundary);
    text += '\n';
    for (const RowSpan& row : step.rows) AddSpan("  row", row, &text);
  }
  return text;
}

}  // namespace tandem::testing
