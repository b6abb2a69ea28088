// Flags of tandem plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/command_line.h"

namespace CLI {
class App;
}

namespace tandem {

// As typed.
struct PlanFlags {
  PlanOptions options;
  std::string strategies = "gpu-only,full-offload,asymmetric,async,apex,auto";
  int64_t async_cohorts = 0;
  std::string gpu_kv_cache;
  std::string cpu_kv_cache;
  std::string host_memory;
  std::optional<double> gpu_memory_utilization;
  std::optional<double> rate;
  double host_gb_per_s = 0;
  double gpu_gb_per_s = 0;
  double gpu_tflops = 0;
};

// flags outlives app.
void AddPlanFlags(CLI::App* app, PlanFlags* flags);

// Errors: kInvalidArgument; param is the flag without dashes.
Result<PlanOptions> MakePlanOptions(const PlanFlags& flags);

}  // namespace tandem
