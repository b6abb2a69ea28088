#include "bench/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/fnv1a.h"
#include "base/param_error.h"
#include "bench/balanced_throughput.h"
#include "bench/distribution.h"
#include "bench/energy_report.h"
#include "bench/engine_report.h"
#include "bench/online_report.h"
#include "bench/ratio_or_null.h"
#include "bench/run_totals.h"
#include "bench/session_report.h"
#include "bench/steady_throughput.h"
#include "bench/upper_bound.h"
#include "bench/workload.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

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

// Messages of failed requests, with how many had each. What was rejected is marked.
ordered_json CountErrors(const std::vector<RequestRecord>& records) {
  struct Group {
    std::string message;
    bool rejected = false;
    int64_t count = 0;
  };
  constexpr size_t kMaxGroups = 20;
  std::map<std::pair<bool, std::string>, int64_t> counts;
  for (const RequestRecord& record : records) {
    if (!record.completed() && !record.cancelled) ++counts[{record.rejected, record.error}];
  }
  std::vector<Group> groups;
  groups.reserve(counts.size() + 1);
  for (const auto& [key, count] : counts)
    groups.push_back({.message = key.second, .rejected = key.first, .count = count});
  if (groups.size() > kMaxGroups) {
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.count > b.count; });
    Group others{.message = fmt::format("{} other messages", groups.size() - kMaxGroups)};
    for (size_t i = kMaxGroups; i < groups.size(); ++i) others.count += groups[i].count;
    groups.resize(kMaxGroups);
    groups.push_back(std::move(others));
  }
  ordered_json errors = ordered_json::array();
  for (const Group& group : groups) {
    ordered_json entry = {{"message", group.message}, {"count", group.count}};
    if (group.rejected) entry["rejected"] = true;
    errors.push_back(std::move(entry));
  }
  return errors;
}

// Null unless every request was completed and said which tokens came.
ordered_json OutputDigest(const BenchRun& run) {
  uint64_t digest = 0;
  for (const RequestRecord& record : run.records) {
    if (!record.completed() || !record.output_digest) return nullptr;
    digest = Fnv1a(fmt::format("{:016x}", *record.output_digest), digest);
  }
  return fmt::format("{:016x}", digest);
}

// What came from a tier, and how fast.
ordered_json TierToJson(TierTotals tier, int64_t output_tokens) {
  ordered_json json = {{"output_tokens", tier.output_tokens},
                       {"token_share", RatioOrNull(static_cast<double>(tier.output_tokens),
                                                   static_cast<double>(output_tokens))},
                       {"completed", tier.requests}};
  AddDistribution("tpot", std::move(tier.tpot_ms), &json);
  AddDistribution("itl", std::move(tier.itl_ms), &json);
  return json;
}

// What the machine's measured costs allow for the requests that count.
void AddBoundFields(const BenchConditions& conditions, const BenchRun& run,
                    std::span<const WorkloadRequest> requests, ordered_json* report) {
  ordered_json& to = *report;
  to["ideal_gpu_only_throughput"] = nullptr;
  to["upper_bound_throughput"] = nullptr;
  if (run.costs == nullptr || !run.engine || requests.empty()) return;
  const EngineStats& stats = run.engine->after;
  const ThroughputBound bound =
      BoundThroughput(*run.costs, requests,
                      {.gpu_tier_tokens = stats.gpu_blocks_total * stats.block_size,
                       .cpu_tier_tokens = stats.cpu_blocks_total * stats.block_size,
                       .max_chunk_tokens = conditions.engine.max_num_batched_tokens});
  to["ideal_gpu_only_throughput"] = bound.ideal_gpu_only;
  to["upper_bound_throughput"] = bound.upper_bound;
}

// Of a window amid the work. After AddEngineFields.
void AddBalancedField(const BenchConditions& conditions, const BenchRun& run,
                      std::span<const WorkloadRequest> requests, ordered_json* report) {
  ordered_json& to = *report;
  to["balanced_output_throughput"] = nullptr;
  if (run.costs == nullptr || !run.engine || !run.window || requests.empty()) return;
  // Where requests come in their own time, nothing says how many there should be.
  if (conditions.mode != "offline") return;
  const ordered_json& tokens = to["iteration_tokens"];
  if (tokens.is_null()) return;
  const WindowWork work = {.seconds = run.window->seconds(),
                           .iterations = to["iterations"],
                           .prefill_tokens = tokens["prefill"],
                           .gpu_tier_tokens = tokens["gpu_tier"],
                           .cpu_tier_tokens = tokens["cpu_tier"]};
  if (const auto balanced = BalancedThroughput(*run.costs, MeanLengthsOf(requests), work))
    to["balanced_output_throughput"] = *balanced;
}

ordered_json ConditionsToJson(const BenchConditions& conditions) {
  const EngineOptions& engine = conditions.engine;
  ordered_json json = {
      {"mode", conditions.mode},
      {"workload", conditions.workload},
      {"dropped", conditions.num_dropped},
      {"num_warmup", conditions.num_warmup},
      {"steady_start", conditions.steady_start},
      {"closed_loop", conditions.closed_loop},
      {"seed", conditions.seed},
      {"model", engine.served_model_name},
      {"device", engine.device},
      {"dtype", engine.dtype ? ordered_json(DTypeName(*engine.dtype)) : ordered_json(nullptr)},
      {"quantization", QuantizationName(engine.quantization)},
      {"kv_cache_dtype", engine.kv_cache_dtype},
      {"cpu_kv_cache_dtype", engine.cpu_kv_cache_dtype},
      {"max_model_len", engine.max_model_len},
      {"max_num_seqs", engine.max_num_seqs},
      {"max_num_batched_tokens", engine.max_num_batched_tokens},
      {"cpu_threads", engine.cpu_threads},
      // The slice of the GPU, where it was cut: 0 is the whole card.
      {"gpu_sm_limit", engine.gpu_sm_limit},
      {"tensor_parallel_size", engine.tensor_parallel_size},
      // Shards on slices of one GPU: 0 is a GPU each.
      {"gpu_sm_slices", engine.gpu_sm_slices},
      {"gpu_memory_limit_bytes", engine.gpu_memory_limit_bytes}};
  if (!conditions.online || !conditions.online->server) return json;
  // A server says nothing of these.
  for (const char* field : {"device", "dtype", "quantization", "kv_cache_dtype", "cpu_kv_cache_dtype",
                            "max_num_seqs", "max_num_batched_tokens", "cpu_threads", "gpu_sm_limit",
                            "tensor_parallel_size", "gpu_sm_slices", "gpu_memory_limit_bytes"}) {
    json[field] = nullptr;
  }
  json["model"] = conditions.online->server->model;
  if (engine.max_model_len == 0) json["max_model_len"] = nullptr;
  return json;
}

// Without the beginning and the end of the run. A window is all that.
void AddSteadyFields(const BenchRun& run, const RunTotals& totals, std::span<const WorkloadRequest> requests,
                     ordered_json* report) {
  ordered_json& to = *report;
  to["steady_output_throughput"] = nullptr;
  to["steady_prefill_share"] = nullptr;
  if (run.window) {
    const auto counted = static_cast<double>(totals.output_tokens);
    to["steady_output_throughput"] = RatioOrNull(counted, run.window->seconds());
    to["steady_prefill_share"] = RatioOrNull(static_cast<double>(totals.input_tokens),
                                             counted * MeanLengthsOf(requests).prompt_per_output);
  } else if (const auto steady = MeasureSteadyThroughput(run.records)) {
    to["steady_output_throughput"] = steady->output_tokens_per_s;
    to["steady_prefill_share"] = steady->prefill_share;
  }
}

}  // namespace

std::string DateOfReport() {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
}

ordered_json MakeBenchReport(const BenchConditions& conditions, const BenchRun& run,
                             const ordered_json& machine) {
  RunTotals totals = AddUpRun(run);
  const std::vector<WorkloadRequest> requests = CountedRequests(run);
  const auto per_second = [&run](int64_t count) {
    return RatioOrNull(static_cast<double>(count), run.counted_seconds());
  };
  ordered_json report = {{"date", DateOfReport()}, {"command", conditions.command}};
  report.update(ConditionsToJson(conditions));
  if (conditions.online) AddOnlineFields(*conditions.online, run, totals, &report);
  report["num_requests"] = run.records.size();
  report["duration"] = run.duration_s;
  report["window_s"] = run.window ? ordered_json(run.window->seconds()) : ordered_json(nullptr);
  report["completed"] = totals.completed;
  report["failed"] = totals.failed;
  report["unfinished"] = totals.unfinished;
  report["begun"] = nullptr;
  if (run.begun) {
    report["begun"] = {{"requests", run.begun->num_begun},
                       {"in_cpu_tier", run.begun->num_in_cpu_tier},
                       {"played_s", run.begun->played_s}};
  }
  report["errors"] = CountErrors(run.records);
  report["total_input_tokens"] = totals.input_tokens;
  report["total_output_tokens"] = totals.output_tokens;
  report["output_digest"] = OutputDigest(run);
  report["request_throughput"] = per_second(totals.ended);
  report["output_throughput"] = per_second(totals.output_tokens);
  report["total_token_throughput"] = per_second(totals.input_tokens + totals.output_tokens);
  AddSteadyFields(run, totals, requests, &report);
  // A server does not say where a request's KV lay.
  const auto tier = [&](TierTotals of_tier) {
    return run.engine ? TierToJson(std::move(of_tier), totals.output_tokens) : ordered_json(nullptr);
  };
  report["gpu_tier"] = tier(std::move(totals.gpu_tier));
  report["cpu_tier"] = tier(std::move(totals.cpu_tier));
  AddDistribution("ttft", std::move(totals.ttft_ms), &report);
  AddDistribution("tpot", std::move(totals.tpot_ms), &report);
  AddDistribution("itl", std::move(totals.itl_ms), &report);
  AddDistribution("e2el", std::move(totals.e2el_ms), &report);
  const std::optional<Distribution> per_token = Summarize(totals.per_token_s);
  report["per_token_latency_percentiles_s"] =
      per_token ? ordered_json(AllPercentiles(std::move(totals.per_token_s))) : ordered_json(nullptr);
  report["mean_per_token_latency_s"] = per_token ? ordered_json(per_token->mean) : ordered_json(nullptr);
  if (conditions.online) AddSessionFields(run, &report);
  AddEngineFields(conditions, run, &report);
  AddEnergyFields(run, conditions.engine.device == "cuda", totals.output_tokens, &report);
  AddBoundFields(conditions, run, requests, &report);
  AddBalancedField(conditions, run, requests, &report);
  report["machine"] = machine;
  return report;
}

Status WriteBenchReport(const ordered_json& report, const std::string& path) {
  std::ofstream file(path);
  file << report.dump(1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", path);
  return {};
}

}  // namespace tandem
