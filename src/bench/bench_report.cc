#include "bench/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/duration_histogram.h"
#include "base/param_error.h"
#include "bench/distribution.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

double Milliseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// The latencies of the completed requests.
struct Latencies {
  std::vector<double> ttft_ms;
  std::vector<double> tpot_ms;
  std::vector<double> itl_ms;
  std::vector<double> e2el_ms;
  std::vector<double> per_token_s;
};

Latencies CollectLatencies(const std::vector<RequestRecord>& records) {
  Latencies all;
  for (const RequestRecord& record : records) {
    if (!record.completed()) continue;
    const double ttft_ms = Milliseconds(record.start, record.first_token);
    const double e2el_ms = Milliseconds(record.start, record.last_token);
    all.ttft_ms.push_back(ttft_ms);
    all.e2el_ms.push_back(e2el_ms);
    all.per_token_s.push_back(e2el_ms / 1e3 / static_cast<double>(record.output_tokens));
    if (record.output_tokens > 1) {
      all.tpot_ms.push_back((e2el_ms - ttft_ms) / static_cast<double>(record.output_tokens - 1));
    }
    all.itl_ms.insert(all.itl_ms.end(), record.inter_token_ms.begin(), record.inter_token_ms.end());
  }
  return all;
}

void AddDistribution(std::string_view name, std::vector<double> values_ms, ordered_json* report) {
  const std::optional<Distribution> distribution = Summarize(std::move(values_ms));
  const auto add = [&](std::string_view statistic, double Distribution::*member) {
    (*report)[fmt::format("{}_{}_ms", statistic, name)] =
        distribution ? ordered_json((*distribution).*member) : ordered_json(nullptr);
  };
  add("mean", &Distribution::mean);
  add("median", &Distribution::median);
  add("p90", &Distribution::p90);
  add("p99", &Distribution::p99);
}

// Messages of failed requests, with how many had each.
ordered_json CountErrors(const std::vector<RequestRecord>& records) {
  std::map<std::string, int64_t> counts;
  for (const RequestRecord& record : records) {
    if (!record.completed()) ++counts[record.error];
  }
  ordered_json errors = ordered_json::array();
  for (const auto& [message, count] : counts) errors.push_back({{"message", message}, {"count", count}});
  return errors;
}

// Mean and percentiles of a histogram in a unit of us_per_unit microseconds; null where nothing was counted.
ordered_json HistogramToJson(const DurationHistogram& histogram, double us_per_unit,
                             const std::vector<std::pair<const char*, double>>& quantiles) {
  const bool any = histogram.count() > 0;
  ordered_json json = {
      {"mean", any ? ordered_json(histogram.MeanUs() / us_per_unit) : ordered_json(nullptr)}};
  for (const auto& [name, quantile] : quantiles) {
    json[name] = any ? ordered_json(histogram.QuantileUs(quantile) / us_per_unit) : ordered_json(nullptr);
  }
  return json;
}

ordered_json CountStrategies(const EngineStatsOfRun& stats) {
  ordered_json counts = ordered_json::object();
  for (const auto& [strategy, count] : stats.after.strategy_iterations) {
    const auto before = stats.before.strategy_iterations.find(strategy);
    const uint64_t of_run =
        count - (before == stats.before.strategy_iterations.end() ? uint64_t{0} : before->second);
    if (of_run > 0) counts[strategy] = of_run;
  }
  return counts.empty() ? ordered_json(nullptr) : counts;
}

// What only the engine's own counters say; all null for an engine in another process.
void AddEngineFields(const BenchConditions& conditions, const BenchRun& run, ordered_json* report) {
  constexpr double kUsPerMs = 1e3;
  ordered_json& to = *report;
  to["strategy"] = conditions.engine.strategy;
  for (const char* field :
       {"strategy_iterations", "gpu_busy", "gpu_gap", "cpu_attention_busy", "gpu_kv_tokens", "cpu_kv_tokens",
        "swapped_tokens", "preemptions", "iterations"}) {
    to[field] = nullptr;
  }
  const EngineStatsOfRun stats = run.engine.value_or(EngineStatsOfRun{});
  const EngineStats& before = stats.before;
  const EngineStats& after = stats.after;
  to["iteration_ms"] =
      HistogramToJson(after.iteration.Since(before.iteration), kUsPerMs, {{"p50", 0.5}, {"p99", 0.99}});
  to["schedule_us"] = HistogramToJson(after.schedule.Since(before.schedule), 1.0, {{"p99", 0.99}});
  to["upper_bound_throughput"] = nullptr;
  if (!run.engine) return;
  // A clock that never moved is no measurement.
  const auto share = [&](double EngineStats::*seconds) {
    return after.*seconds > 0 && run.duration_s > 0
               ? ordered_json((after.*seconds - before.*seconds) / run.duration_s)
               : ordered_json(nullptr);
  };
  to["strategy_iterations"] = CountStrategies(stats);
  to["gpu_busy"] = share(&EngineStats::gpu_busy_seconds);
  to["gpu_gap"] = share(&EngineStats::gpu_gap_seconds);
  to["cpu_attention_busy"] = share(&EngineStats::cpu_attention_busy_seconds);
  to["gpu_kv_tokens"] = after.gpu_blocks_total * after.block_size;
  to["cpu_kv_tokens"] = after.cpu_blocks_total * after.block_size;
  to["preemptions"] = after.preemptions - before.preemptions;
  to["iterations"] = after.iterations - before.iterations;
}

ordered_json ConditionsToJson(const BenchConditions& conditions) {
  const EngineOptions& engine = conditions.engine;
  return {{"mode", conditions.mode},
          {"workload", conditions.workload},
          {"dropped", conditions.num_dropped},
          {"num_warmup", conditions.num_warmup},
          {"seed", conditions.seed},
          {"model", engine.served_model_name},
          {"device", engine.device},
          {"dtype", engine.dtype ? ordered_json(DTypeName(*engine.dtype)) : ordered_json(nullptr)},
          {"max_model_len", engine.max_model_len},
          {"max_num_seqs", engine.max_num_seqs},
          {"max_num_batched_tokens", engine.max_num_batched_tokens},
          // The slice of the GPU, where it was cut: 0 is the whole card.
          {"gpu_sm_limit", engine.gpu_sm_limit},
          {"gpu_memory_limit_bytes", engine.gpu_memory_limit_bytes}};
}

std::string Text(const ordered_json& value, int digits) {
  if (value.is_null()) return "-";
  if (value.is_number_integer()) return fmt::format("{}", value.get<int64_t>());
  return fmt::format("{:.{}f}", value.get<double>(), digits);
}

}  // namespace

ordered_json MakeBenchReport(const BenchConditions& conditions, const BenchRun& run,
                             const ordered_json& machine) {
  int64_t completed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  for (const RequestRecord& record : run.records) {
    if (!record.completed()) continue;
    ++completed;
    input_tokens += record.prompt_tokens;
    output_tokens += record.output_tokens;
  }
  const auto per_second = [&run](int64_t count) {
    return run.duration_s > 0 ? ordered_json(static_cast<double>(count) / run.duration_s)
                              : ordered_json(nullptr);
  };
  ordered_json report = {{"date", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
                         {"command", conditions.command}};
  report.update(ConditionsToJson(conditions));
  report["num_requests"] = run.records.size();
  report["duration"] = run.duration_s;
  report["completed"] = completed;
  report["failed"] = static_cast<int64_t>(run.records.size()) - completed;
  report["errors"] = CountErrors(run.records);
  report["total_input_tokens"] = input_tokens;
  report["total_output_tokens"] = output_tokens;
  report["request_throughput"] = per_second(completed);
  report["output_throughput"] = per_second(output_tokens);
  report["total_token_throughput"] = per_second(input_tokens + output_tokens);
  Latencies latencies = CollectLatencies(run.records);
  AddDistribution("ttft", std::move(latencies.ttft_ms), &report);
  AddDistribution("tpot", std::move(latencies.tpot_ms), &report);
  AddDistribution("itl", std::move(latencies.itl_ms), &report);
  AddDistribution("e2el", std::move(latencies.e2el_ms), &report);
  const std::optional<Distribution> per_token = Summarize(std::move(latencies.per_token_s));
  report["mean_per_token_latency_s"] = per_token ? ordered_json(per_token->mean) : ordered_json(nullptr);
  AddEngineFields(conditions, run, &report);
  report["machine"] = machine;
  return report;
}

std::string FormatBenchTable(const ordered_json& report) {
  std::string table = fmt::format(
      "{}, {}, {} on {}: {} of {} requests in {} s{}\n", report["workload"].get<std::string>(),
      report["mode"].get<std::string>(), report["model"].get<std::string>(),
      report["device"].get<std::string>(), Text(report["completed"], 0), Text(report["num_requests"], 0),
      Text(report["duration"], 2),
      report["dropped"] == 0 ? ""
                             : fmt::format("; {} longer than the context of {} tokens were left out",
                                           Text(report["dropped"], 0), Text(report["max_model_len"], 0)));
  for (const ordered_json& error : report["errors"]) {
    table += fmt::format("  {} failed: {}\n", Text(error["count"], 0), error["message"].get<std::string>());
  }
  const auto row = [&table, &report](const char* label, const char* field, int digits, const char* unit) {
    table += fmt::format("  {:<22}{:>12} {}\n", label, Text(report[field], digits), unit);
  };
  row("output throughput", "output_throughput", 1, "tok/s");
  row("total throughput", "total_token_throughput", 1, "tok/s");
  row("request throughput", "request_throughput", 3, "req/s");
  row("input tokens", "total_input_tokens", 0, "");
  row("output tokens", "total_output_tokens", 0, "");
  row("latency per token", "mean_per_token_latency_s", 4, "s (mean of latency / output tokens)");
  row("gpu tier", "gpu_kv_tokens", 0, "tokens");
  row("cpu tier", "cpu_kv_tokens", 0, "tokens");
  row("preemptions", "preemptions", 0, "");
  row("gpu busy", "gpu_busy", 3, "of the run");
  row("gap of iterations", "gpu_gap", 3, "of the run");
  table +=
      fmt::format("  {:<22}{:>12} {}\n", "iteration", Text(report["iteration_ms"]["mean"], 3), "ms (mean)");
  table += fmt::format("  {:<22}{:>12} {}\n", "of it scheduling", Text(report["schedule_us"]["mean"], 1),
                       "us (mean)");
  table += fmt::format("  {:<22}{:>12}{:>12}{:>12}{:>12}\n", "ms", "mean", "median", "p90", "p99");
  constexpr std::pair<const char*, const char*> kLatencies[] = {{"time to first token", "ttft"},
                                                                {"time per output token", "tpot"},
                                                                {"between tokens", "itl"},
                                                                {"whole request", "e2el"}};
  for (const auto& [label, name] : kLatencies) {
    table += fmt::format("  {:<22}", label);
    for (const char* statistic : {"mean", "median", "p90", "p99"}) {
      table += fmt::format("{:>12}", Text(report[fmt::format("{}_{}_ms", statistic, name)], 2));
    }
    table += '\n';
  }
  return table;
}

Status WriteBenchReport(const ordered_json& report, const std::string& path) {
  std::ofstream file(path);
  file << report.dump(1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", path);
  return {};
}

}  // namespace tandem
