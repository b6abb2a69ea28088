#include "bench/session_report.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "bench/distribution.h"
#include "bench/run_totals.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

double MillisecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

ordered_json SummaryToJson(std::vector<double> values_ms) {
  const std::optional<Distribution> summary = Summarize(std::move(values_ms));
  if (!summary) return {{"mean", nullptr}, {"median", nullptr}, {"p90", nullptr}, {"p99", nullptr}};
  return {{"mean", summary->mean}, {"median", summary->median}, {"p90", summary->p90}, {"p99", summary->p99}};
}

// Turns and sessions, as far as they count.
struct SessionTotals {
  int64_t begun = 0;
  int64_t finished = 0;      // whose last turn was answered
  std::set<int64_t> failed;  // one of whose turns failed or was rejected
  int64_t turns_finished = 0;
  std::vector<double> turn_ms;
  std::vector<double> first_ttft_ms;
  std::vector<double> later_ttft_ms;
};

SessionTotals AddUpSessions(const BenchRun& run) {
  SessionTotals totals;
  for (const RequestRecord& record : run.records) {
    const bool ends_in_window = !run.window || run.window->Has(record.last_token);
    if (record.completed() && ends_in_window) {
      ++totals.turns_finished;
      if (record.turn->is_last) ++totals.finished;
    }
    if (!StartCounts(record, run.window)) continue;
    if (record.turn->number == 0) ++totals.begun;
    if (!record.completed()) {
      totals.failed.insert(record.turn->session);
      continue;
    }
    totals.turn_ms.push_back(MillisecondsBetween(record.due, record.last_token));
    (record.turn->number == 0 ? totals.first_ttft_ms : totals.later_ttft_ms)
        .push_back(MillisecondsBetween(record.start, record.first_token));
  }
  return totals;
}

ordered_json SessionsToJson(const BenchRun& run) {
  constexpr double kSecondsPerMinute = 60;
  SessionTotals totals = AddUpSessions(run);
  const double seconds = run.counted_seconds();
  return {{"begun", totals.begun},
          {"finished", totals.finished},
          {"failed", totals.failed.size()},
          {"turns_finished", totals.turns_finished},
          {"turns_per_minute", seconds > 0 ? ordered_json(static_cast<double>(totals.turns_finished) *
                                                          kSecondsPerMinute / seconds)
                                           : ordered_json(nullptr)},
          {"turn_ms", SummaryToJson(std::move(totals.turn_ms))},
          {"first_turn_ttft_ms", SummaryToJson(std::move(totals.first_ttft_ms))},
          {"later_turn_ttft_ms", SummaryToJson(std::move(totals.later_ttft_ms))}};
}

// Of the completed requests.
ordered_json PrefixHitsToJson(const BenchRun& run) {
  int64_t prompt_tokens = 0;
  int64_t possible_tokens = 0;
  int64_t hit_tokens = 0;
  bool is_known = false;
  for (const RequestRecord& record : run.records) {
    if (!record.completed() || !StartCounts(record, run.window)) continue;
    prompt_tokens += record.prompt_tokens;
    possible_tokens += record.possible_hit_tokens.value_or(0);
    hit_tokens += record.cached_tokens.value_or(0);
    is_known = is_known || record.cached_tokens.has_value();
  }
  const bool has_share = is_known && possible_tokens > 0;
  return {{"prompt_tokens", prompt_tokens},
          {"possible_tokens", possible_tokens},
          {"tokens", is_known ? ordered_json(hit_tokens) : ordered_json(nullptr)},
          {"share_of_possible",
           has_share ? ordered_json(static_cast<double>(hit_tokens) / static_cast<double>(possible_tokens))
                     : ordered_json(nullptr)}};
}

}  // namespace

void AddSessionFields(const BenchRun& run, ordered_json* report) {
  const bool has_sessions = !run.records.empty() && run.records.front().turn.has_value();
  const bool may_hit = std::any_of(run.records.begin(), run.records.end(), [](const RequestRecord& record) {
    return record.possible_hit_tokens.has_value();
  });
  (*report)["sessions"] = has_sessions ? SessionsToJson(run) : ordered_json(nullptr);
  (*report)["prefix_hits"] = may_hit ? PrefixHitsToJson(run) : ordered_json(nullptr);
}

}  // namespace tandem
