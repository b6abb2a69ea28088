// A report as a table for people.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "bench/bench_report.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::string Text(const ordered_json& value, int digits) {
  if (value.is_null()) return "-";
  if (value.is_number_integer()) return fmt::format("{}", value.get<int64_t>());
  return fmt::format("{:.{}f}", value.get<double>(), digits);
}

// One figure a row.
class Rows {
 public:
  Rows(const ordered_json& report, std::string* table) : report_(report), table_(table) {}
  void AddValue(const char* label, const ordered_json& value, int digits, const char* unit) {
    *table_ += fmt::format("  {:<22}{:>12} {}\n", label, Text(value, digits), unit);
  }
  void Add(const char* label, const char* field, int digits, const char* unit) {
    AddValue(label, report_[field], digits, unit);
  }

 private:
  const ordered_json& report_;
  std::string* table_;
};

// Of the requests that were completed, where that is not all.
void AddOutcome(const ordered_json& report, std::string* table) {
  for (const ordered_json& error : report["errors"]) {
    *table +=
        fmt::format("  {} {}: {}\n", Text(error["count"], 0),
                    error.contains("rejected") ? "rejected" : "failed", error["message"].get<std::string>());
  }
  if (report["window_s"].is_null()) return;
  if (report["mode"] != "online") {
    *table += fmt::format("  what counts: {} s of it; {} requests were not done at the end\n",
                          Text(report["window_s"], 2), Text(report["unfinished"], 0));
    return;
  }
  *table += fmt::format("  what counts: {} s of it; {} requests were due then, {} of them completed\n",
                        Text(report["window_s"], 2), Text(report["counted_requests"], 0),
                        Text(report["completed"], 0));
}

// How the requests arrived, and whether the client kept up.
void AddOnlineRows(const ordered_json& report, Rows* rows) {
  const std::string arrivals = report["arrivals"].get<std::string>();
  if (report["rate"].is_string()) {
    rows->AddValue("arrivals", nullptr, 0, "all at once");
  } else if (report["rate"].is_null()) {
    rows->Add("arrivals", "time_scale", 3, "times the trace's times");
  } else {
    rows->Add("arrivals", "rate", 3, ("req/s, " + arrivals).c_str());
  }
  rows->Add("rejected", "rejected", 0, "requests");
  rows->Add("failed", "failed", 0, "requests");
  if (report["unsent"] != 0) {
    rows->Add("never sent", "unsent", 0,
              report["sessions"].is_null() ? "requests, for want of room"
                                           : "turns, behind a failed one or for want of room");
  }
  rows->Add("peak concurrency", "peak_concurrency", 0, "requests");
  // With a limit the wait for room is most of it.
  rows->AddValue(report["max_concurrency"].is_null() ? "sent too late by" : "waited to be sent",
                 report["send_delay_ms"]["mean"], 3, "ms (mean)");
  rows->AddValue("", report["send_delay_ms"]["p99"], 3, "ms (p99)");
  if (report["url"].is_null()) return;
  rows->Add("cpu of the client", "client_cpu_share", 4, "of a core");
  rows->Add("", "client_cpu_us_per_token", 1, "us a token");
}

// How sessions went, and what of their prompts was found in a prefix cache.
void AddSessionRows(const ordered_json& report, Rows* rows) {
  if (const ordered_json& sessions = report["sessions"]; !sessions.is_null()) {
    rows->AddValue("sessions begun", sessions["begun"], 0, "");
    rows->AddValue("finished", sessions["finished"], 0, "sessions");
    rows->AddValue("ended by a failed turn", sessions["failed"], 0, "sessions");
    rows->AddValue("finished turns", sessions["turns_per_minute"], 1, "a minute");
  }
  if (const ordered_json& hits = report["prefix_hits"]; !hits.is_null()) {
    rows->AddValue("prompts", hits["prompt_tokens"], 0, "tokens");
    rows->AddValue("possible prefix hits", hits["possible_tokens"], 0, "tokens");
    rows->AddValue("prefix hits", hits["tokens"], 0, "tokens");
    rows->AddValue("", hits["share_of_possible"], 3, "of the possible");
  }
}

// What only the engine's own counters say.
void AddEngineRows(const ordered_json& report, Rows* rows) {
  rows->Add("gpu tier", "gpu_kv_tokens", 0, "tokens");
  rows->Add("cpu tier", "cpu_kv_tokens", 0, "tokens");
  rows->Add("of it in use, at most", "max_cpu_kv_gb", 2, "GB");
  rows->Add("visits of riders", "rider_visits", 0, "");
  rows->Add("that were not ready", "rider_skips", 0, "");
  rows->Add("decoded in cpu tier", "cpu_tier_tokens", 0, "tokens");
  rows->Add("swapped", "swapped_tokens", 0, "tokens");
  rows->Add("preemptions", "preemptions", 0, "");
  rows->Add("computed again", "recomputed_tokens", 0, "tokens");
  rows->Add("found in prefix cache", "prefix_hit_rate", 3, "of the prompts' tokens");
  rows->Add("gpu busy", "gpu_busy", 3, "of the run");
  rows->Add("gap of iterations", "gpu_gap", 3, "of the run");
  rows->Add("cpu attention busy", "cpu_attention_busy", 3, "of the run");
  rows->Add("cpu attention", "cpu_attention_gb_per_s", 1, "GB/s of KV, over the run");
  rows->Add("error of prediction", "prediction_error", 3, "of the predicted iteration times");
  rows->AddValue("iteration", report["iteration_ms"]["mean"], 3, "ms (mean)");
  rows->AddValue("of it scheduling", report["schedule_us"]["mean"], 1, "us (mean)");
}

// Where nothing counts the whole of it there is no ratio, and a table says nothing.
void AddEnergyRows(const ordered_json& report, Rows* rows) {
  const ordered_json& energy = report["energy"];
  if (energy.is_null() || energy["j_per_token"].is_null()) return;
  rows->AddValue("energy", energy["j_per_token"], 3, "J a token");
  if (!energy["gpu_j"].is_null()) rows->AddValue("of it the GPU", energy["gpu_j"], 1, "J (NVML)");
  rows->AddValue(
      "of it the host", energy["host_j"], 1,
      energy["watts_per_core"].is_null()
          ? "J (RAPL)"
          : fmt::format("J (at {} W a busy core)", energy["watts_per_core"].get<double>()).c_str());
}

// Mean and percentiles in one row; value_of: of a statistic's name.
template <typename ValueOf>
void AddStatistics(std::string_view label, std::string* table, const ValueOf& value_of) {
  *table += fmt::format("  {:<22}", label);
  for (const char* statistic : {"mean", "median", "p90", "p99"})
    *table += fmt::format("{:>12}", Text(value_of(statistic), 2));
  *table += '\n';
}

void AddLatencies(const ordered_json& report, std::string* table) {
  *table += fmt::format("  {:<22}{:>12}{:>12}{:>12}{:>12}\n", "ms", "mean", "median", "p90", "p99");
  constexpr std::pair<const char*, const char*> kLatencies[] = {{"time to first token", "ttft"},
                                                                {"time per output token", "tpot"},
                                                                {"between tokens", "itl"},
                                                                {"whole request", "e2el"}};
  for (const auto& latency : kLatencies) {
    AddStatistics(latency.first, table, [&](const char* statistic) {
      return report[fmt::format("{}_{}_ms", statistic, latency.second)];
    });
  }
  if (report.contains("sessions") && !report["sessions"].is_null()) {
    constexpr std::pair<const char*, const char*> kOfTurns[] = {{"whole turn", "turn_ms"},
                                                                {"first token, turn 1", "first_turn_ttft_ms"},
                                                                {"first token, later", "later_turn_ttft_ms"}};
    for (const auto& of_turn : kOfTurns) {
      AddStatistics(of_turn.first, table,
                    [&](const char* statistic) { return report["sessions"][of_turn.second][statistic]; });
    }
  }
  if (report["iterations"].is_null()) return;  // a server says nothing of its tiers
  for (const auto& [label, tier] : {std::pair("gpu tier", "gpu_tier"), std::pair("cpu tier", "cpu_tier")}) {
    const ordered_json& of_tier = report[tier];
    if (of_tier["output_tokens"] == 0) continue;
    AddStatistics(fmt::format("between, {}", label), table,
                  [&](const char* statistic) { return of_tier[fmt::format("{}_itl_ms", statistic)]; });
  }
}

}  // namespace

std::string FormatBenchTable(const ordered_json& report) {
  const auto text_of = [&report](const char* field) { return report[field].get<std::string>(); };
  const bool is_online = report["mode"] == "online";
  const bool has_engine = !report["iterations"].is_null();
  // With a window by due time "completed" is not of all requests.
  const std::string completed =
      is_online && !report["window_s"].is_null() ? "" : Text(report["completed"], 0) + " of ";
  std::string table = fmt::format(
      "{}, {}, {} on {}: {}{} requests in {} s{}\n", text_of("workload"), text_of("mode"), text_of("model"),
      text_of(report["device"].is_null() ? "url" : "device"), completed, Text(report["num_requests"], 0),
      Text(report["duration"], 2),
      report["dropped"] == 0 ? ""
                             : fmt::format("; {} longer than the context of {} tokens were left out",
                                           Text(report["dropped"], 0), Text(report["max_model_len"], 0)));
  AddOutcome(report, &table);
  Rows rows(report, &table);
  rows.Add("output throughput", "output_throughput", 1, "tok/s");
  if (report["window_s"].is_null()) {
    rows.Add("steady throughput", "steady_output_throughput", 1,
             "tok/s (from 20 % to 80 % of the output tokens)");
    rows.Add("prefill in that time", "steady_prefill_share", 2, "of the run's mean");
  } else if (has_engine && !is_online) {
    rows.Add("prompts for these outputs", "steady_prefill_share", 2, "of the workload's");
    rows.Add("in balance", "balanced_output_throughput", 1, "tok/s (from measured costs)");
  }
  if (has_engine) {
    rows.Add("ideal gpu-only", "ideal_gpu_only_throughput", 1, "tok/s (from measured costs)");
    rows.Add("upper bound", "upper_bound_throughput", 1, "tok/s (from measured costs)");
  }
  rows.Add("total throughput", "total_token_throughput", 1, "tok/s");
  rows.Add("request throughput", "request_throughput", 3, "req/s");
  rows.Add("input tokens", "total_input_tokens", 0, "");
  rows.Add("output tokens", "total_output_tokens", 0, "");
  rows.Add("latency per token", "mean_per_token_latency_s", 4, "s (mean of latency / output tokens)");
  if (is_online) {
    AddOnlineRows(report, &rows);
    AddSessionRows(report, &rows);
  }
  if (has_engine) AddEngineRows(report, &rows);
  AddEnergyRows(report, &rows);
  AddLatencies(report, &table);
  return table;
}

}  // namespace tandem
