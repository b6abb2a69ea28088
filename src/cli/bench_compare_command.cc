#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/bench_report.h"
#include "bench/comparison_table.h"
#include "bench/offline_bench.h"
#include "bench/strategy_choice.h"
#include "bench/workload.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "cli/energy_of_flags.h"
#include "cli/machine_report.h"
#include "cli/model_of_flags.h"
#include "cli/offline_options.h"
#include "cli/online_run.h"
#include "engine/engine.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

BenchOnlineOptions OnlineOptions(const BenchCompareOptions& options, const std::string& workload,
                                 double rate) {
  BenchOnlineOptions online;
  online.engine = options.run.engine;
  online.workload = workload;
  online.num_requests = options.run.num_requests;
  online.arrivals = {.kind = ArrivalKind::kPoisson, .rate = rate, .time_scale = {}};
  online.run = {.num_warmup = options.run.num_warmup,
                .seed = options.run.engine.seed,
                .show_progress = true,
                .max_concurrency = 0,
                .duration_s = options.run.duration_s,
                .warm_up_s = std::max(0.0, options.run.warm_up_s),
                .cool_down_s = options.cool_down_s,
                .deadline_s = options.deadline_s};
  online.command = options.run.command;
  return online;
}

// One engine for all runs.
class Comparison {
 public:
  Comparison(const BenchCompareOptions& options, Engine* engine)
      : options_(options),
        engine_(engine),
        energy_(EnergyOptionsFor(engine->options(), options.run.watts_per_core)) {
    machine_ = MachineReport();
    machine_["device"] = engine->device_description();
    report_ = {{"date", DateOfReport()}, {"command", options.run.command}, {"runs", ordered_json::array()}};
  }

  // rate: absent for an offline run. What was measured before stays in the file, whatever happens later.
  Status Run(const std::string& workload, std::optional<double> rate, const StrategyChoice& strategy) {
    const auto start = std::chrono::steady_clock::now();
    const std::string what =
        fmt::format("{}{}, {}", workload, rate ? fmt::format(", {} requests/s", *rate) : "", strategy.text);
    ordered_json run = {{"workload", workload}};
    if (rate) run["rate"] = *rate;
    run["strategy"] = strategy.text;
    auto result = Measure(workload, rate, strategy);
    if (result.ok()) {
      LogInfo("{}: {:.1f} output tokens a second", what, (*result)["output_throughput"].get<double>());
      if ((*result)["failed"].get<int64_t>() > 0) ++num_incomplete_;
      run["result"] = std::move(result).value();
    } else {
      LogError("{}: {}", what, result.error().message);
      run["error"] = result.error().message;
      ++num_incomplete_;
    }
    run["wall_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_["runs"].push_back(std::move(run));
    return options_.run.json.empty() ? Status() : WriteBenchReport(report_, options_.run.json);
  }

  const ordered_json& report() const { return report_; }
  Status Outcome() const {
    if (num_incomplete_ == 0) return {};
    return MakeError(ErrorCode::kUnavailable, "requests failed in {} of {} runs", num_incomplete_,
                     report_["runs"].size());
  }

 private:
  Result<ordered_json> Measure(const std::string& workload, std::optional<double> rate,
                               const StrategyChoice& strategy) {
    TANDEM_RETURN_IF_ERROR(
        engine_->UseStrategy(strategy.name, strategy.async_cohorts, Engine::Learned::kForget));
    if (rate) {
      BenchOnlineOptions online = OnlineOptions(options_, workload, *rate);
      online.run.energy = &energy_;
      return MeasureOnline(engine_, online, machine_);
    }
    TANDEM_ASSIGN_OR_RETURN(Workload requests,
                            LoadWorkload(workload, options_.run.num_requests, options_.run.engine.seed));
    TANDEM_RETURN_IF_ERROR(KeepFitting(engine_->max_model_len(), &requests));
    TANDEM_ASSIGN_OR_RETURN(const BenchRun run,
                            RunOfflineBench(engine_, requests, OfflineRunOptions(options_.run, &energy_)));
    return MakeBenchReport(OfflineConditions(options_.run, requests, engine_->options()), run, machine_);
  }

  const BenchCompareOptions& options_;
  Engine* const engine_;
  EnergyMeter energy_;
  ordered_json machine_;
  ordered_json report_;
  int64_t num_incomplete_ = 0;
};

}  // namespace

Status BenchCompare(const BenchCompareOptions& options) {
  // What is wrong with the flags is said before a model is loaded.
  for (const std::string& workload : options.workloads) {
    if (options.rates.empty()) TANDEM_RETURN_IF_ERROR(LoadWorkload(workload, 1, options.run.engine.seed));
    for (const double rate : options.rates)
      TANDEM_RETURN_IF_ERROR(CheckOnlineFlags(OnlineOptions(options, workload, rate)));
  }
  TANDEM_RETURN_IF_ERROR(CheckJsonWritable(options.run.json));
  EngineOptions engine_options = OfflineEngineOptions(options.run);
  engine_options.strategy = StrategyForAll(options.strategies);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  Comparison comparison(options, engine.get());
  std::vector<std::optional<double>> rates(options.rates.begin(), options.rates.end());
  if (rates.empty()) rates.emplace_back();
  for (int64_t round = 0; round < options.repeat; ++round) {
    for (const std::string& workload : options.workloads) {
      for (const std::optional<double> rate : rates) {
        for (const StrategyChoice& strategy : options.strategies)
          TANDEM_RETURN_IF_ERROR(comparison.Run(workload, rate, strategy));
      }
    }
  }
  fmt::print("{}", FormatComparison(comparison.report()));
  return comparison.Outcome();
}

}  // namespace tandem
