#include "plan/plan_printer.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {
namespace {

void PrintRow(const RowSpan& span, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out, " {}@{}", span.sequence, span.start);
  if (span.num_tokens > 1) fmt::format_to(out, "+{}", span.num_tokens - 1);
}

void PrintChunk(const RowSpan& span, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out, "prefill {} [{}, {}){}", span.sequence, span.start, span.end(),
                 span.tier == Tier::kCpu ? " to cpu" : "");
  if (span.num_sampled() == 1) *text += " samples";
  if (span.num_sampled() > 1) fmt::format_to(out, " logits from {}", span.start + span.sampled_from);
  *text += '\n';
}

bool IsChunk(const RowSpan& span) {
  return span.attention == Tier::kGpu && !span.is_decode();
}

void PrintDecodes(std::string_view name, const std::vector<RowSpan>& spans, Tier tier, std::string* text) {
  const size_t length = text->size();
  *text += name;
  const size_t without_rows = text->size();
  for (const RowSpan& span : spans) {
    if (!IsChunk(span) && span.tier == tier) PrintRow(span, text);
  }
  if (text->size() == without_rows) {
    text->resize(length);
  } else {
    *text += '\n';
  }
}

}  // namespace

std::string PrintPlan(const IterationPlan& plan) {
  std::string text;
  auto out = std::back_inserter(text);
  if (!plan.dropped.empty()) {
    text += "drop";
    for (const CohortId id : plan.dropped) fmt::format_to(out, " {}", id);
    text += '\n';
  }
  for (const AttachedPrefix& prefix : plan.attached)
    fmt::format_to(out, "attach {} [0, {}) in {}\n", prefix.sequence, prefix.num_tokens,
                   TierName(prefix.tier));
  if (!plan.preempted.empty()) {
    text += "preempt";
    for (const Preemption& each : plan.preempted)
      fmt::format_to(out, " {} ({})", each.sequence, PreemptionReasonName(each.reason));
    text += '\n';
  }
  for (const Move& move : plan.moves)
    fmt::format_to(out, "move {} to {}\n", move.sequence, TierName(move.to));
  if (plan.copy_down.max_blocks > 0)
    fmt::format_to(out, "copy-down to {} at most {}, one in {}\n", plan.copy_down.margin,
                   plan.copy_down.max_blocks, plan.copy_down.one_in);
  for (const RowSpan& span : plan.main.spans) {
    if (IsChunk(span)) PrintChunk(span, &text);
  }
  PrintDecodes("gpu-decode", plan.main.spans, Tier::kGpu, &text);
  PrintDecodes("cpu-decode", plan.main.spans, Tier::kCpu, &text);
  for (const CohortStep& step : plan.cohorts) {
    fmt::format_to(out, "cohort {}{} cursor {} rows", step.cohort, step.in_transit() ? " in transit" : "",
                   step.cursor);
    for (const RowSpan& row : step.rows) PrintRow(row, &text);
    text += step.rides ? " rides" : " visits";
    for (const Visit& visit : step.visits) fmt::format_to(out, " {}@{}", visit.layer, visit.boundary);
    text += '\n';
  }
  return text;
}

}  // namespace tandem
