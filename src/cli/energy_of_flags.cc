#include "cli/energy_of_flags.h"

#include "cli/gpu_probe.h"

namespace tandem {

EnergyOptions EnergyOptionsFor(const EngineOptions& engine, double watts_per_core) {
  EnergyOptions options{.watts_per_core = watts_per_core};
  if (engine.device != "cuda") return options;
  const GpuProbe probe = ProbeGpus();
  if (!probe.gpus.empty()) options.gpu_pci_bus_id = probe.gpus.front().pci_bus_id;
  return options;
}

}  // namespace tandem
