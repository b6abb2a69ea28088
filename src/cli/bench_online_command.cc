#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/bench_report.h"
#include "bench/completion_client.h"
#include "bench/online_bench.h"
#include "bench/online_plan.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "cli/energy_of_flags.h"
#include "cli/machine_report.h"
#include "cli/model_of_flags.h"
#include "cli/online_run.h"
#include "cli/rate_search_run.h"
#include "engine/engine.h"

namespace tandem {
namespace {

Result<OnlinePlan> MakePlan(const BenchOnlineOptions& options, std::optional<int64_t> max_model_len) {
  return PlanOnlineBench({.workload = options.workload,
                          .num_requests = options.num_requests,
                          .arrivals = options.arrivals,
                          .duration_s = options.run.duration_s,
                          .max_concurrency = options.run.max_concurrency,
                          .max_model_len = max_model_len,
                          .seed = options.engine.seed});
}

OnlineBenchOptions RunOptions(const BenchOnlineOptions& options) {
  OnlineBenchOptions run = options.run;
  run.seed = options.prompt_seed.value_or(options.engine.seed);
  return run;
}

bool NamesModel(const EngineOptions& engine) {
  return !engine.model.empty() || !engine.dummy.empty();
}

BenchConditions MakeConditions(const BenchOnlineOptions& options, const OnlinePlan& plan) {
  BenchConditions conditions;
  conditions.mode = "online";
  conditions.command = options.command;
  conditions.workload = plan.workload.name;
  conditions.num_dropped = plan.workload.num_dropped;
  conditions.num_warmup = options.run.num_warmup;
  conditions.seed = options.engine.seed;
  conditions.online = OnlineConditions{.arrivals = plan.arrivals,
                                       .max_concurrency = options.run.max_concurrency,
                                       .warm_up_s = options.run.warm_up_s,
                                       .cool_down_s = options.run.cool_down_s,
                                       .deadline_s = options.run.deadline_s,
                                       .server = {}};
  return conditions;
}

Status DumpWorkload(const BenchOnlineOptions& options) {
  std::optional<int64_t> max_model_len;
  if (NamesModel(options.engine)) {
    TANDEM_ASSIGN_OR_RETURN(max_model_len, ContextLength(options.engine));
  } else if (options.engine.max_model_len > 0) {
    max_model_len = options.engine.max_model_len;
  }
  TANDEM_ASSIGN_OR_RETURN(const OnlinePlan plan, MakePlan(options, max_model_len));
  TANDEM_RETURN_IF_ERROR(WriteWorkloadJson(plan.workload, options.engine.seed, options.dump_workload));
  fmt::print("{}: {} requests\n", options.dump_workload, plan.workload.requests.size());
  return {};
}

// What MODEL says, else what the server says, else what nearly every model has.
Result<int64_t> VocabSize(const BenchOnlineOptions& options, const CompletionServer& server) {
  constexpr int64_t kUsualVocabSize = 32000;
  if (options.vocab_size > 0) return options.vocab_size;
  if (!NamesModel(options.engine)) return server.vocab_size.value_or(kUsualVocabSize);
  TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOfModel(options.engine));
  return config.vocab_size;
}

// A run, or the search for a rate, by whatever makes a run.
Status RunAndShow(const BenchOnlineOptions& options, const MeasureOnlineOnce& measure) {
  if (options.find_rate_at_latency_s == 0) {
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report, measure(options));
    return ShowAndWriteReport(report, options.json);
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report, FindRateAtLatency(options, measure));
  fmt::print("{}", FormatRateSearch(report));
  return options.json.empty() ? Status() : WriteBenchReport(report, options.json);
}

Status BenchServerOnline(const BenchOnlineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ServerUrl url, ParseServerUrl(options.url));
  TANDEM_ASSIGN_OR_RETURN(
      CompletionServer server,
      FindCompletionServer(url, options.api_key, options.engine.served_model_name, options.ssl_ca_certs));
  if (!options.extra_body.empty()) server.extra_fields = nlohmann::ordered_json::parse(options.extra_body);
  TANDEM_ASSIGN_OR_RETURN(const int64_t vocab_size, VocabSize(options, server));
  std::optional<int64_t> max_model_len = server.max_model_len;
  if (options.engine.max_model_len > 0) max_model_len = options.engine.max_model_len;
  const auto measure = [&](const BenchOnlineOptions& once) -> Result<nlohmann::ordered_json> {
    TANDEM_ASSIGN_OR_RETURN(const OnlinePlan plan, MakePlan(once, max_model_len));
    TANDEM_ASSIGN_OR_RETURN(const BenchRun run, RunOnlineBench(server, vocab_size, plan, RunOptions(once)));
    BenchConditions conditions = MakeConditions(once, plan);
    conditions.engine.max_model_len = max_model_len.value_or(0);
    conditions.online->server =
        BenchServer{.url = options.url, .model = server.model, .vocab_size = vocab_size};
    return MakeBenchReport(conditions, run, MachineReport());
  };
  return RunAndShow(options, measure);
}

Status BenchEngineOnline(const BenchOnlineOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckOnlineFlags(options));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options.engine));
  nlohmann::ordered_json machine = MachineReport();
  machine["device"] = engine->device_description();
  EnergyMeter energy(EnergyOptionsFor(engine->options(), options.watts_per_core));
  BenchOnlineOptions metered = options;
  metered.run.energy = &energy;
  return RunAndShow(
      metered, [&](const BenchOnlineOptions& once) { return MeasureOnline(engine.get(), once, machine); });
}

}  // namespace

Status CheckOnlineFlags(const BenchOnlineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const OnlinePlan draft, MakePlan(options, std::nullopt));
  return CheckOnlineOptions(options.run, draft);
}

Result<int64_t> LongestOutput(const BenchOnlineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const OnlinePlan plan, MakePlan(options, std::nullopt));
  int64_t longest = 0;
  for (const WorkloadRequest& request : plan.workload.requests)
    longest = std::max(longest, request.output_tokens);
  return longest;
}

Result<nlohmann::ordered_json> MeasureOnline(Engine* engine, const BenchOnlineOptions& options,
                                             const nlohmann::ordered_json& machine) {
  TANDEM_ASSIGN_OR_RETURN(const OnlinePlan plan, MakePlan(options, engine->max_model_len()));
  TANDEM_ASSIGN_OR_RETURN(const BenchRun run, RunOnlineBench(engine, plan, RunOptions(options)));
  BenchConditions conditions = MakeConditions(options, plan);
  conditions.engine = engine->options();
  return MakeBenchReport(conditions, run, machine);
}

Status BenchOnline(const BenchOnlineOptions& options) {
  if (!options.dump_workload.empty()) return DumpWorkload(options);
  TANDEM_RETURN_IF_ERROR(CheckJsonWritable(options.json));
  return options.url.empty() ? BenchEngineOnline(options) : BenchServerOnline(options);
}

}  // namespace tandem
