#include "bench/run_totals.h"

#include <algorithm>
#include <chrono>

namespace tandem {
namespace {

double Milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// The tokens of one request that count.
void AddTokens(const RequestRecord& record, const std::optional<BenchWindow>& window, RunTotals* totals) {
  const bool by_due = window && window->by_due;
  const bool all_measured = by_due && record.completed() && StartCounts(record, window);
  double since_first_ms = 0;
  for (int64_t i = 0; i < record.output_tokens; ++i) {
    const auto token = static_cast<size_t>(i);
    const double gap_ms = i == 0 ? 0 : static_cast<double>(record.inter_token_ms[token - 1]);
    since_first_ms += gap_ms;
    const auto since_first = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(since_first_ms));
    const bool counts = !window || window->Has(record.first_token + since_first);
    const bool measured = by_due ? all_measured : counts;
    const bool in_cpu_tier = token < record.in_cpu_tier.size() && record.in_cpu_tier[token];
    TierTotals& tier = in_cpu_tier ? totals->cpu_tier : totals->gpu_tier;
    if (counts) {
      ++totals->output_tokens;
      ++tier.output_tokens;
      if (i == 0 && !record.begun) totals->input_tokens += record.prompt_tokens;
    }
    if (!measured) continue;
    if (i > 0) {
      totals->itl_ms.push_back(gap_ms);
      tier.itl_ms.push_back(gap_ms);
    } else if (!record.begun) {
      totals->ttft_ms.push_back(Milliseconds(record.start, record.first_token));
    }
  }
}

void AddCompleted(const RequestRecord& record, RunTotals* totals) {
  ++totals->completed;
  const double e2el_ms = Milliseconds(record.start, record.last_token);
  if (!record.begun) {
    totals->e2el_ms.push_back(e2el_ms);
    totals->per_token_s.push_back(e2el_ms / 1e3 / static_cast<double>(record.output_tokens));
  }
  if (record.output_tokens < 2) return;
  const double tpot_ms =
      Milliseconds(record.first_token, record.last_token) / static_cast<double>(record.output_tokens - 1);
  totals->tpot_ms.push_back(tpot_ms);
  const auto& in_cpu_tier = record.in_cpu_tier;
  const auto from_cpu =
      in_cpu_tier.empty() ? 0 : std::count(in_cpu_tier.begin() + 1, in_cpu_tier.end(), true);
  TierTotals& tier = 2 * from_cpu > record.output_tokens - 1 ? totals->cpu_tier : totals->gpu_tier;
  ++tier.requests;
  tier.tpot_ms.push_back(tpot_ms);
}

// As CountedRequests says.
bool HasPart(const RequestRecord& record, const std::optional<BenchWindow>& window) {
  if (!window) return record.completed();
  if (!window->by_due) return true;
  return record.output_tokens > 0 && record.first_token <= window->end && record.last_token > window->begin;
}

}  // namespace

bool StartCounts(const RequestRecord& record, const std::optional<BenchWindow>& window) {
  return !window || !window->by_due || window->HasStart(record.start);
}

RunTotals AddUpRun(const BenchRun& run) {
  RunTotals totals;
  for (const RequestRecord& record : run.records) {
    if (record.cancelled) {
      ++totals.unfinished;
    } else if (record.rejected) {
      ++totals.rejected;
    } else if (!record.completed()) {
      ++totals.failed;
    }
    if (StartCounts(record, run.window)) {
      ++totals.counted;
      totals.send_delay_ms.push_back(record.send_delay_ms);
    }
    if (run.window || record.completed()) AddTokens(record, run.window, &totals);
    if (!record.completed()) continue;
    const bool ended = !run.window || run.window->Has(record.last_token);
    if (ended) ++totals.ended;
    const bool by_due = run.window && run.window->by_due;
    if (by_due ? StartCounts(record, run.window) : ended) AddCompleted(record, &totals);
  }
  return totals;
}

std::vector<WorkloadRequest> CountedRequests(const BenchRun& run) {
  std::vector<WorkloadRequest> requests;
  for (const RequestRecord& record : run.records) {
    if (!HasPart(record, run.window)) continue;
    requests.push_back({.prompt_tokens = record.prompt_tokens,
                        .output_tokens = record.made_tokens + record.wanted_output_tokens,
                        .possible_hit_tokens = record.possible_hit_tokens.value_or(0),
                        .shared_tokens = record.shared_tokens});
  }
  return requests;
}

}  // namespace tandem
