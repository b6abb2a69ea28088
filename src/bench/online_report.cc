#include "bench/online_report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/check.h"
#include "bench/distribution.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Zero means that there is none.
ordered_json OrNull(double value) {
  return value > 0 ? ordered_json(value) : ordered_json(nullptr);
}

// JSON has no infinity; vLLM writes it as text, too.
ordered_json RateToJson(const ArrivalPlan& arrivals) {
  if (arrivals.kind == ArrivalKind::kTrace)
    return arrivals.trace_rate ? ordered_json(*arrivals.trace_rate) : ordered_json(nullptr);
  return std::isinf(arrivals.rate) ? ordered_json("inf") : ordered_json(arrivals.rate);
}

int64_t CountTokens(const BenchRun& run) {
  int64_t num_tokens = 0;
  for (const RequestRecord& record : run.records) num_tokens += record.output_tokens;
  return num_tokens;
}

void AddClientFields(const BenchRun& run, ordered_json* report) {
  ordered_json& to = *report;
  const OnlineFigures& figures = *run.online;
  to["client_cpu_share"] = nullptr;
  to["client_cpu_us_per_token"] = nullptr;
  if (!figures.client_cpu_s) return;
  const auto num_tokens = static_cast<double>(CountTokens(run));
  if (figures.client_s > 0) to["client_cpu_share"] = *figures.client_cpu_s / figures.client_s;
  if (num_tokens > 0) to["client_cpu_us_per_token"] = *figures.client_cpu_s * 1e6 / num_tokens;
}

}  // namespace

void AddOnlineFields(const OnlineConditions& conditions, const BenchRun& run, const RunTotals& totals,
                     ordered_json* report) {
  TANDEM_CHECK(run.online.has_value(), "an online report of a run that was none");
  ordered_json& to = *report;
  const ArrivalPlan& arrivals = conditions.arrivals;
  const bool scaled = arrivals.kind == ArrivalKind::kTrace && !arrivals.trace_rate;
  to["url"] = conditions.server ? ordered_json(conditions.server->url) : ordered_json(nullptr);
  to["server_model"] = conditions.server ? ordered_json(conditions.server->model) : ordered_json(nullptr);
  to["vocab_size"] = conditions.server ? ordered_json(conditions.server->vocab_size) : ordered_json(nullptr);
  to["arrivals"] = ArrivalKindName(arrivals.kind);
  to["rate"] = RateToJson(arrivals);
  to["time_scale"] = scaled ? ordered_json(arrivals.time_scale) : ordered_json(nullptr);
  to["max_concurrency"] =
      conditions.max_concurrency > 0 ? ordered_json(conditions.max_concurrency) : ordered_json(nullptr);
  to["warm_up_s"] = conditions.warm_up_s;
  to["cool_down_s"] = conditions.cool_down_s;
  to["deadline_s"] = OrNull(conditions.deadline_s);
  to["counted_requests"] = totals.counted;
  to["rejected"] = totals.rejected;
  to["unsent"] = run.online->num_unsent;
  to["peak_concurrency"] = run.online->peak_concurrency;
  const std::optional<Distribution> delay = Summarize(totals.send_delay_ms);
  to["send_delay_ms"] = {{"mean", delay ? ordered_json(delay->mean) : ordered_json(nullptr)},
                         {"p99", delay ? ordered_json(delay->p99) : ordered_json(nullptr)}};
  AddClientFields(run, report);
}

}  // namespace tandem
