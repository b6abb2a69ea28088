#include "cli/rate_search_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/log.h"
#include "bench/bench_report.h"
#include "bench/rate_search.h"
#include "cli/online_run.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Overloaded, a server has twice the duration to answer, or twice what its longest request takes at the
// limit.
double DeadlineSeconds(const BenchOnlineOptions& options, int64_t longest_output) {
  if (options.run.deadline_s > 0) return options.run.deadline_s;
  const double at_limit_s = options.find_rate_at_latency_s * static_cast<double>(longest_output);
  return 2 * std::max(options.run.duration_s, at_limit_s);
}

double LatencyOf(const ordered_json& report) {
  const ordered_json& latency = report["mean_per_token_latency_s"];
  const bool all_answered = report["failed"].get<int64_t>() == 0 && report["rejected"].get<int64_t>() == 0;
  return all_answered && latency.is_number() ? latency.get<double>()
                                             : std::numeric_limits<double>::infinity();
}

ordered_json OrNull(std::optional<double> value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

std::optional<double> RateOf(const std::optional<RateTrial>& trial) {
  return trial ? std::optional(trial->rate) : std::nullopt;
}

}  // namespace

Result<ordered_json> FindRateAtLatency(const BenchOnlineOptions& options, const MeasureOnlineOnce& measure) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t longest_output, LongestOutput(options));
  RateSearch search(*options.arrivals.rate, options.find_rate_at_latency_s);
  ordered_json report = {{"date", DateOfReport()},
                         {"mode", "rate-search"},
                         {"command", options.command},
                         {"workload", options.workload},
                         {"latency_limit_s", options.find_rate_at_latency_s},
                         {"runs", ordered_json::array()}};
  while (const std::optional<double> rate = search.NextRate()) {
    BenchOnlineOptions once = options;
    once.arrivals.rate = *rate;
    once.prompt_seed = options.engine.seed + search.trials().size() + 1;
    once.run.deadline_s = DeadlineSeconds(options, longest_output);
    Result<ordered_json> result = measure(once);
    if (!result.ok() && result.error().code != ErrorCode::kUnavailable) return std::move(result).error();
    const double latency_s = result.ok() ? LatencyOf(*result) : std::numeric_limits<double>::infinity();
    search.Add({.rate = *rate, .latency_s = latency_s});
    ordered_json run = {{"rate", *rate}, {"latency_s", OrNull(latency_s)}};
    if (result.ok()) {
      run["result"] = std::move(result).value();
    } else {
      run["error"] = result.error().message;
    }
    LogInfo("{:.4g} requests/s: {}", *rate,
            std::isfinite(latency_s) ? fmt::format("{:.4f} s a token", latency_s) : "not all were answered");
    report["runs"].push_back(std::move(run));
  }
  report["rate_within"] = OrNull(RateOf(search.within()));
  report["rate_beyond"] = OrNull(RateOf(search.beyond()));
  report["highest_rate"] = OrNull(search.highest_rate());
  return report;
}

std::string FormatRateSearch(const ordered_json& report) {
  std::string text = "  requests/s   s a token   output tok/s\n";
  for (const ordered_json& run : report["runs"]) {
    const std::string latency =
        run["latency_s"].is_null() ? "not all" : fmt::format("{:.4f}", run["latency_s"].get<double>());
    const std::string throughput =
        run.contains("result") ? fmt::format("{:.1f}", run["result"]["output_throughput"].get<double>())
                               : "-";
    text += fmt::format("{:12.4g}{:>12}{:>15}\n", run["rate"].get<double>(), latency, throughput);
  }
  const auto limit = report["latency_limit_s"].get<double>();
  if (report["highest_rate"].is_null()) return text + fmt::format("no rate kept to {:g} s a token\n", limit);
  return text + fmt::format("{}{:.4g} requests/s at {:g} s a token\n",
                            report["rate_beyond"].is_null() ? "at least " : "",
                            report["highest_rate"].get<double>(), limit);
}

}  // namespace tandem
