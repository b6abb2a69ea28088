#include "bench/energy_report.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::optional<double> Difference(std::optional<double> before, std::optional<double> after) {
  if (!before || !after) return std::nullopt;
  return *after - *before;
}

ordered_json OrNull(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

void AddEnergyFields(const BenchRun& run, bool uses_gpu, int64_t output_tokens, ordered_json* report) {
  ordered_json& energy = (*report)["energy"];
  energy = nullptr;
  if (!run.energy) return;
  const EnergyOfRun& of_run = *run.energy;
  const auto gpu_j = Difference(of_run.before.gpu_j, of_run.after.gpu_j);
  const auto host_j = Difference(of_run.before.host_j, of_run.after.host_j);
  const bool has_watts = of_run.host_source == HostEnergySource::kWattsPerCore;
  const bool is_whole = host_j && (gpu_j || !uses_gpu) && output_tokens > 0;
  energy = {{"gpu_j", OrNull(gpu_j)},
            {"gpu_source", gpu_j ? ordered_json("nvml") : ordered_json(nullptr)},
            {"host_j", OrNull(host_j)},
            {"host_source",
             host_j ? ordered_json(HostEnergySourceName(of_run.host_source)) : ordered_json(nullptr)},
            {"watts_per_core", has_watts ? ordered_json(of_run.watts_per_core) : ordered_json(nullptr)},
            {"j_per_token", nullptr}};
  if (is_whole) {
    energy["j_per_token"] = (gpu_j.value_or(0) + *host_j) / static_cast<double>(output_tokens);
  }
}

}  // namespace tandem
