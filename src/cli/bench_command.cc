#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/bench_report.h"
#include "bench/offline_bench.h"
#include "bench/workload.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "cli/energy_of_flags.h"
#include "cli/machine_report.h"
#include "cli/model_of_flags.h"
#include "cli/offline_options.h"
#include "engine/engine.h"

namespace tandem {
namespace {

Status DumpWorkload(const BenchOptions& options, Workload workload) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t max_model_len, ContextLength(options.engine));
  TANDEM_RETURN_IF_ERROR(KeepFitting(max_model_len, &workload));
  TANDEM_RETURN_IF_ERROR(WriteWorkloadJson(workload, options.engine.seed, options.dump_workload));
  fmt::print("{}: {} requests\n", options.dump_workload, workload.requests.size());
  return {};
}

}  // namespace

EngineOptions OfflineEngineOptions(const BenchOptions& options) {
  EngineOptions engine_options = options.engine;
  // All requests wait in the engine's queue at the start.
  engine_options.max_num_queued_reqs =
      std::max<int64_t>(engine_options.max_num_queued_reqs, options.num_requests);
  return engine_options;
}

BenchRunOptions OfflineRunOptions(const BenchOptions& options, EnergyMeter* energy) {
  constexpr double kWarmUpShare = 0.1;
  return {.num_warmup = options.num_warmup,
          .seed = options.engine.seed,
          .show_progress = true,
          .steady_start = options.steady_start,
          .closed_loop = options.closed_loop,
          .duration_s = options.duration_s,
          .warm_up_s = options.warm_up_s >= 0 ? options.warm_up_s : kWarmUpShare * options.duration_s,
          .energy = energy};
}

BenchConditions OfflineConditions(const BenchOptions& options, const Workload& workload,
                                  const EngineOptions& engine) {
  BenchConditions conditions;
  conditions.mode = "offline";
  conditions.command = options.command;
  conditions.workload = workload.name;
  conditions.num_dropped = workload.num_dropped;
  conditions.num_warmup = options.num_warmup;
  conditions.steady_start = options.steady_start;
  conditions.closed_loop = options.closed_loop;
  conditions.seed = options.engine.seed;
  conditions.engine = engine;
  return conditions;
}

Status BenchOffline(const BenchOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Workload workload,
                          LoadWorkload(options.workload, options.num_requests, options.engine.seed));
  if (!options.dump_workload.empty()) return DumpWorkload(options, std::move(workload));
  TANDEM_RETURN_IF_ERROR(CheckJsonWritable(options.json));

  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          Engine::Create(OfflineEngineOptions(options)));
  TANDEM_RETURN_IF_ERROR(KeepFitting(engine->max_model_len(), &workload));
  EnergyMeter energy(EnergyOptionsFor(engine->options(), options.watts_per_core));
  TANDEM_ASSIGN_OR_RETURN(const BenchRun run,
                          RunOfflineBench(engine.get(), workload, OfflineRunOptions(options, &energy)));
  nlohmann::ordered_json machine = MachineReport();
  machine["device"] = engine->device_description();
  return ShowAndWriteReport(
      MakeBenchReport(OfflineConditions(options, workload, engine->options()), run, machine), options.json);
}

}  // namespace tandem
