#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "bench/bench_report.h"
#include "bench/offline_bench.h"
#include "bench/workload.h"
#include "cli/commands.h"
#include "cli/machine_report.h"
#include "engine/engine.h"
#include "load/checkpoint.h"
#include "load/dummy_models.h"

namespace tandem {
namespace {

// The context that an engine with these options would have, from the model's configuration alone.
Result<int64_t> ContextLength(const EngineOptions& options) {
  int64_t trained_len = 0;
  if (!options.dummy.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, DummyModelConfig(options.dummy));
    trained_len = config.max_position;
  } else {
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model));
    trained_len = checkpoint->config().max_position;
  }
  return options.max_model_len > 0 ? std::min(options.max_model_len, trained_len) : trained_len;
}

Status DropAndReport(int64_t max_model_len, Workload* workload) {
  DropTooLong(max_model_len, workload);
  if (workload->requests.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "workload",
                          "all {} requests of {} are longer than the context of {} tokens",
                          workload->num_dropped, workload->name, max_model_len);
  }
  if (workload->num_dropped > 0) {
    LogWarn("{}: {} requests are longer than the context of {} tokens and are left out", workload->name,
            workload->num_dropped, max_model_len);
  }
  return {};
}

Status DumpWorkload(const BenchOptions& options, Workload workload) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t max_model_len, ContextLength(options.engine));
  TANDEM_RETURN_IF_ERROR(DropAndReport(max_model_len, &workload));
  TANDEM_RETURN_IF_ERROR(WriteWorkloadJson(workload, options.engine.seed, options.dump_workload));
  fmt::print("{}: {} requests\n", options.dump_workload, workload.requests.size());
  return {};
}

// A run of minutes must not end in a file that cannot be written.
Status CheckWritable(const std::string& path) {
  if (path.empty()) return {};
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", path);
  std::fclose(file);
  return {};
}

}  // namespace

Status BenchOffline(const BenchOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Workload workload,
                          LoadWorkload(options.workload, options.num_requests, options.engine.seed));
  if (!options.dump_workload.empty()) return DumpWorkload(options, std::move(workload));
  TANDEM_RETURN_IF_ERROR(CheckWritable(options.json));

  EngineOptions engine_options = options.engine;
  // All requests wait in the engine's queue at the start.
  engine_options.max_num_queued_reqs =
      std::max<int64_t>(engine_options.max_num_queued_reqs, options.num_requests);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  TANDEM_RETURN_IF_ERROR(DropAndReport(engine->max_model_len(), &workload));
  TANDEM_ASSIGN_OR_RETURN(const BenchRun run, RunOfflineBench(engine.get(), workload,
                                                              {.num_warmup = options.num_warmup,
                                                               .seed = engine_options.seed,
                                                               .show_progress = true}));

  BenchConditions conditions;
  conditions.mode = "offline";
  conditions.command = options.command;
  conditions.workload = workload.name;
  conditions.num_dropped = workload.num_dropped;
  conditions.num_warmup = options.num_warmup;
  conditions.seed = engine_options.seed;
  conditions.engine = engine->options();
  nlohmann::ordered_json machine = MachineReport();
  machine["device"] = engine->device_description();
  const nlohmann::ordered_json report = MakeBenchReport(conditions, run, machine);
  fmt::print("{}", FormatBenchTable(report));
  if (!options.json.empty()) TANDEM_RETURN_IF_ERROR(WriteBenchReport(report, options.json));
  if (const auto failed = report["failed"].get<int64_t>(); failed > 0) {
    return MakeError(ErrorCode::kUnavailable, "{} of {} requests failed", failed, run.records.size());
  }
  return {};
}

}  // namespace tandem
