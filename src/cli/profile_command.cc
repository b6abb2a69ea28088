#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/param_error.h"
#include "cli/commands.h"
#include "cli/machine_report.h"
#include "engine/engine.h"
#include "perf/cost_table.h"
#include "perf/profile_file.h"
#include "profile/profile_report.h"

namespace tandem {
namespace {

// Of a layer.
KvTokenBytes TokenBytesOf(const Engine& engine) {
  const auto of = [&](Tier tier) {
    return static_cast<double>(engine.kv_token_bytes(tier)) /
           static_cast<double>(engine.model_config().num_layers);
  };
  return {.gpu = of(Tier::kGpu), .cpu = of(Tier::kCpu)};
}

// Measured by an engine of its own, with the parts that would serve.
Result<CostTable> MeasureCosts(const Engine& engine) {
  const CostTable* table = engine.cost_table();
  if (table == nullptr) {
    return MakeParamError(ErrorCode::kUnsupported, "strategy", "strategy {} schedules without costs",
                          engine.options().strategy);
  }
  return *table;
}

nlohmann::ordered_json MakeReport(const Engine& engine, const CostMeasurements& measurements) {
  const ModelConfig& config = engine.model_config();
  const ProfileFigures figures =
      FiguresOf(measurements, config, engine.layer_weight_bytes(), TokenBytesOf(engine));
  nlohmann::ordered_json machine = MachineReport();
  machine["device"] = engine.device_description();
  return {{"model", engine.options().served_model_name},
          {"dtype", DTypeName(*engine.options().dtype)},
          {"gpu_sm_limit", engine.options().gpu_sm_limit},
          {"figures",
           {{"linear_one_row_us", figures.linear_one_row_us},
            {"weights_gb_per_s", figures.weights_gb_per_s},
            {"linear_tflop_per_s", figures.linear_tflop_per_s},
            {"gpu_attention_gb_per_s", figures.gpu_attention_gb_per_s},
            {"cpu_attention_gb_per_s", figures.cpu_attention_gb_per_s},
            {"swap_gb_per_s", figures.swap_gb_per_s}}},
          {"costs_us", ToJson(measurements)},
          {"machine", machine}};
}

Status WriteJson(const nlohmann::ordered_json& report, const std::string& path) {
  std::ofstream out(path);
  out << report.dump(1) << '\n';
  out.close();
  if (!out) return MakeParamError(ErrorCode::kIo, "json", "{} cannot be written", path);
  return {};
}

}  // namespace

Status MeasureProfile(const ProfileCommandOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.measure_costs = true;
  // The one that needs every cost.
  if (engine_options.strategy == "auto" || engine_options.strategy == "gpu-only")
    engine_options.strategy = "asymmetric";
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  TANDEM_ASSIGN_OR_RETURN(const CostTable table, MeasureCosts(*engine));
  fmt::print("{}", FormatProfile(table.measurements(), engine->model_config(), engine->layer_weight_bytes(),
                                 TokenBytesOf(*engine)));
  if (options.json.empty()) return {};
  return WriteJson(MakeReport(*engine, table.measurements()), options.json);
}

}  // namespace tandem
