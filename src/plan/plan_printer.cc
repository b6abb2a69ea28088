#include "plan/plan_printer.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

namespace tandem {
namespace {

void PrintRows(const std::vector<DecodeRow>& rows, std::string* text) {
  for (const DecodeRow& row : rows)
    fmt::format_to(std::back_inserter(*text), " {}@{}", row.sequence, row.position);
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
  if (!plan.preempted.empty()) {
    text += "preempt";
    for (const SequenceId id : plan.preempted) fmt::format_to(out, " {}", id);
    text += '\n';
  }
  for (const Move& move : plan.moves)
    fmt::format_to(out, "move {} to {}\n", move.sequence, TierName(move.to));
  for (const PrefillChunk& chunk : plan.main.prefills) {
    fmt::format_to(out, "prefill {} [{}, {}){}{}\n", chunk.sequence, chunk.start,
                   chunk.start + chunk.num_tokens, chunk.tier == Tier::kCpu ? " to cpu" : "",
                   chunk.samples ? " samples" : "");
  }
  if (!plan.main.gpu_decodes.empty()) {
    text += "gpu-decode";
    PrintRows(plan.main.gpu_decodes, &text);
    text += '\n';
  }
  if (!plan.main.cpu_decodes.empty()) {
    text += "cpu-decode";
    PrintRows(plan.main.cpu_decodes, &text);
    text += '\n';
  }
  for (const CohortStep& step : plan.cohorts) {
    fmt::format_to(out, "cohort {} cursor {} rows", step.cohort, step.cursor);
    PrintRows(step.rows, &text);
    text += step.rides ? " rides" : " visits";
    for (const Visit& visit : step.visits) fmt::format_to(out, " {}@{}", visit.layer, visit.boundary);
    text += '\n';
  }
  return text;
}

}  // namespace tandem
